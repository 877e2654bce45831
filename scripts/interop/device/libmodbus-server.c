/*
 * A field device of another make, for tests of the gateway: libmodbus answers on TCP or on a serial line. Its registers
 * are those of the demo's boiler, moved by the clock; each write that it carries out is told on standard output.
 *
 *   libmodbus-server tcp PORT          a loopback socket, any number of clients
 *   libmodbus-server rtu DEVICE UNIT   a serial line, 19200 8E1
 */
#include <errno.h>
#include <math.h>
#include <modbus/modbus.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { TEMPERATURE = 0, COUNTER = 2, SETPOINT = 10, LEVEL = 20, ALARM = 30, REGISTERS = 40, COILS = 16, RUNNING = 3 };

static struct timespec began;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - began.tv_sec) + (double)(now.tv_nsec - began.tv_nsec) / 1e9;
}

/* put lays a value of 32 bits out with its high half first. libmodbus has modbus_set_float_abcd for this, whose order has
 * differed between its versions. */
static void put(uint16_t *registers, uint32_t value) {
    registers[0] = (uint16_t)(value >> 16);
    registers[1] = (uint16_t)value;
}

/* move sets what the process has changed: the temperature swings in a minute, the counter goes up each 100 ms. */
static void move(modbus_mapping_t *map) {
    double t = seconds();
    float temperature = (float)(55 + 35 * sin(2 * M_PI * t / 60));
    uint32_t bits;
    memcpy(&bits, &temperature, sizeof bits);
    put(map->tab_registers + TEMPERATURE, bits);
    put(map->tab_registers + COUNTER, (uint32_t)(t * 10));
    map->tab_registers[LEVEL] = (uint16_t)(int16_t)(100 + 100 * sin(2 * M_PI * t / 300));
}

/* tell prints the registers or coils that a write has set. */
static void tell(const uint8_t *pdu, const modbus_mapping_t *map) {
    int function = pdu[0], address = pdu[1] << 8 | pdu[2], count = 1;
    if (function == 15 || function == 16) {
        count = pdu[3] << 8 | pdu[4];
    } else if (function != 5 && function != 6 && function != 22) {
        return;
    }
    for (int i = address; i < address + count; i++) {
        if (function == 5 || function == 15) {
            if (i < map->nb_bits) printf("wrote coil %d %d\n", i, map->tab_bits[i]);
        } else if (i < map->nb_registers) {
            printf("wrote holding %d %d\n", i, map->tab_registers[i]);
        }
    }
}

/* answer serves one request that libmodbus has received. */
static void answer(modbus_t *ctx, const uint8_t *query, int length, modbus_mapping_t *map) {
    move(map);
    if (modbus_reply(ctx, query, length, map) >= 0) tell(query + modbus_get_header_length(ctx), map);
}

static int fail(const char *what) {
    fprintf(stderr, "libmodbus-server: %s: %s\n", what, modbus_strerror(errno));
    return 1;
}

static int serve_tcp(int port, modbus_mapping_t *map) {
    modbus_t *ctx = modbus_new_tcp("127.0.0.1", port);
    if (ctx == NULL) return fail("no context");
    int listener = modbus_tcp_listen(ctx, 8);
    if (listener < 0) return fail("listen");
    fd_set open;
    FD_ZERO(&open);
    FD_SET(listener, &open);
    printf("ready tcp %d\n", port);
    for (int highest = listener;;) {
        fd_set readable = open;
        if (select(highest + 1, &readable, NULL, NULL, NULL) < 0) return fail("select");
        for (int fd = 0; fd <= highest; fd++) {
            if (!FD_ISSET(fd, &readable)) continue;
            if (fd == listener) {
                int client = accept(listener, NULL, NULL);
                if (client < 0) continue;
                if (client >= FD_SETSIZE) {
                    close(client);
                    continue;
                }
                FD_SET(client, &open);
                if (client > highest) highest = client;
                continue;
            }
            uint8_t query[MODBUS_TCP_MAX_ADU_LENGTH];
            modbus_set_socket(ctx, fd);
            int length = modbus_receive(ctx, query);
            if (length > 0) {
                answer(ctx, query, length, map);
            } else if (length < 0) {
                FD_CLR(fd, &open);
                close(fd);
            }
        }
    }
}

static int serve_rtu(const char *device, int unit, modbus_mapping_t *map) {
    modbus_t *ctx = modbus_new_rtu(device, 19200, 'E', 8, 1);
    if (ctx == NULL) return fail("no context");
    if (modbus_set_slave(ctx, unit) < 0) return fail("unit");
    if (modbus_connect(ctx) < 0) return fail(device);
    printf("ready rtu %s\n", device);
    for (;;) {
        uint8_t query[MODBUS_RTU_MAX_ADU_LENGTH];
        int length = modbus_receive(ctx, query);
        if (length > 0) {
            answer(ctx, query, length, map);
        } else if (length < 0 && errno == EIO) {
            return fail(device); /* the line is gone */
        }
    }
}

int main(int argc, char **argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    clock_gettime(CLOCK_MONOTONIC, &began);
    modbus_mapping_t *map = modbus_mapping_new(COILS, COILS, REGISTERS, REGISTERS);
    if (map == NULL) return fail("registers");
    map->tab_registers[SETPOINT] = 650;
    map->tab_bits[RUNNING] = 1;
    if (argc == 3 && strcmp(argv[1], "tcp") == 0) return serve_tcp(atoi(argv[2]), map);
    if (argc == 4 && strcmp(argv[1], "rtu") == 0) return serve_rtu(argv[2], atoi(argv[3]), map);
    fprintf(stderr, "usage: libmodbus-server tcp PORT | rtu DEVICE UNIT\n");
    return 2;
}
