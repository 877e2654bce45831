// A field device of another make, for tests of the gateway: modbus-serial answers on TCP or on a serial line. Its registers
// are those of the demo's boiler, moved by the clock; each write that it carries out is told on standard output.
//
//   node modbus-serial.mjs tcp PORT
//   node modbus-serial.mjs rtu DEVICE UNIT     19200 8E1
import modbus from "modbus-serial";

const [kind, at, unit] = process.argv.slice(2);
const began = performance.now();
const registers = new Uint16Array(40);
const coils = new Array(16).fill(false);
registers[10] = 650;
coils[3] = true;

// move sets what the process has changed: the temperature swings in a minute, the counter goes up each 100 ms.
function move() {
  const t = (performance.now() - began) / 1000;
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat32(0, 55 + 35 * Math.sin((2 * Math.PI * t) / 60));
  view.setUint32(4, Math.floor(t * 10));
  for (let i = 0; i < 4; i++) registers[i] = view.getUint16(2 * i);
  registers[20] = 100 + 100 * Math.sin((2 * Math.PI * t) / 300);
}

// at fails with exception 2 for an address that is not there.
function cell(table, address) {
  if (address >= table.length) throw Object.assign(new Error("no such address"), { modbusErrorCode: 2 });
  return table[address];
}

const device = {
  getHoldingRegister(address) {
    move();
    return cell(registers, address);
  },
  getCoil: (address) => cell(coils, address),
  setRegister(address, value) {
    cell(registers, address);
    registers[address] = value;
    console.log(`wrote holding ${address} ${value}`);
  },
  setCoil(address, value) {
    cell(coils, address);
    coils[address] = Boolean(value);
    console.log(`wrote coil ${address} ${Number(coils[address])}`);
  },
  readDeviceIdentification: () => ({ 0x00: "Acme", 0x01: "X1", 0x02: "V2.11", 0x05: "Boiler" }),
};

const fail = (err) => {
  console.error(`modbus-serial: ${err.message}`);
  process.exit(1);
};
const server =
  kind === "tcp"
    ? new modbus.ServerTCP(device, { host: "127.0.0.1", port: Number(at), unitID: 1 })
    : new modbus.ServerSerial(device, { port: at, baudRate: 19200, parity: "even", unitID: Number(unit) });
server.on("socketError", () => {}); // a client that goes is no end
server.on("serverError", fail);
server.on("error", fail);
server.on("initialized", () => console.log(`ready ${kind} ${at}`));
process.on("SIGTERM", () => process.exit(0));
