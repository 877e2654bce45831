package modbus

import (
	"bytes"
	"encoding/binary"

	gomodbus "github.com/goburrow/modbus"
)

// The sizes of frames in bytes (Messaging on TCP/IP, 3.1.3; Serial Line, 2.3 and 2.5.1).
const (
	mbapSize     = 7
	maxTCPFrame  = 260
	maxRTUFrame  = 256
	crcSize      = 2
	exceptionBit = 0x80
)

// answerSize is how long the PDU of a proper answer to the request PDU is, and false for a function that is not ours to
// ask.
func answerSize(pdu []byte) (int, bool) {
	if len(pdu) < 5 {
		return 0, false
	}
	n := int(binary.BigEndian.Uint16(pdu[3:]))
	switch pdu[0] {
	case gomodbus.FuncCodeReadCoils, gomodbus.FuncCodeReadDiscreteInputs:
		return 2 + (n+7)/8, true
	case gomodbus.FuncCodeReadHoldingRegisters, gomodbus.FuncCodeReadInputRegisters:
		return 2 + 2*n, true
	case gomodbus.FuncCodeWriteSingleCoil, gomodbus.FuncCodeWriteSingleRegister,
		gomodbus.FuncCodeWriteMultipleCoils, gomodbus.FuncCodeWriteMultipleRegisters:
		return 5, true
	case gomodbus.FuncCodeMaskWriteRegister:
		return 7, true
	}
	return 0, false
}

// reads reports whether the request only reads.
func reads(pdu []byte) bool {
	return pdu[0] >= gomodbus.FuncCodeReadCoils && pdu[0] <= gomodbus.FuncCodeReadInputRegisters
}

// answers reports whether the PDU of a frame answers the request: its function, its length and its count are those
// that were asked for, and a write is repeated as it was sent. goburrow's client compares neither count nor function.
func answers(request, pdu []byte) bool {
	if len(pdu) == 2 && pdu[0] == request[0]|exceptionBit {
		return true
	}
	want, ok := answerSize(request)
	if !ok || len(pdu) != want || pdu[0] != request[0] {
		return false
	}
	if reads(request) {
		return int(pdu[1]) == len(pdu)-2
	}
	return bytes.Equal(pdu, request[:want])
}

// tcpFrame cuts the first frame off what a TCP connection brought. n is 0 while it is not complete; ok is false when
// the stream holds no frames: there is no way to find the next one.
func tcpFrame(b []byte) (n int, ok bool) {
	if len(b) < mbapSize-1 {
		return 0, true
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	if binary.BigEndian.Uint16(b[2:]) != 0 || length < 2 || length > maxTCPFrame-(mbapSize-1) {
		return 0, false
	}
	if n = mbapSize - 1 + length; len(b) < n {
		return 0, true
	}
	return n, true
}

// rtuFrame finds the answer to the request ADU in what a line brought: the noise before it, a lost frame's end or the
// zeros that some converters send are passed over. It returns nil while there is none.
func rtuFrame(request, b []byte) []byte {
	unit, pdu := request[0], request[1:len(request)-crcSize]
	want, ok := answerSize(pdu)
	if !ok {
		return nil
	}
	for i := 0; i+2 < len(b); i++ {
		if b[i] != unit {
			continue
		}
		n := 1 + want + crcSize
		if b[i+1] == pdu[0]|exceptionBit {
			n = 1 + 2 + crcSize
		} else if b[i+1] != pdu[0] {
			continue
		}
		if len(b)-i < n {
			continue
		}
		frame := b[i : i+n]
		if answers(pdu, frame[1:n-crcSize]) && crc16(frame[:n-crcSize]) == binary.LittleEndian.Uint16(frame[n-crcSize:]) {
			return frame
		}
	}
	return nil
}

// crcTable is the CRC of each byte, reversed polynomial 0xA001 (Serial Line, 6.2.2).
var crcTable = func() (t [256]uint16) {
	for i := range t {
		c := uint16(i)
		for range 8 {
			if c&1 == 1 {
				c = c>>1 ^ 0xA001
			} else {
				c >>= 1
			}
		}
		t[i] = c
	}
	return t
}()

func crc16(b []byte) uint16 {
	c := uint16(0xFFFF)
	for _, v := range b {
		c = c>>8 ^ crcTable[byte(c)^v]
	}
	return c
}
