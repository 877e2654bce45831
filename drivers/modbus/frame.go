package modbus

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"

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

const (
	funcIdentify  = 43
	meiIdentify   = 14
	identifyAhead = 7 // bytes of an answer to 43/14 before its objects (Application Protocol, 6.21)
	maxPDU        = 253
)

// answerSize is how long the PDU of a proper answer to the request PDU is, and false for a function that is not ours to
// ask. That of an identification is at least as long.
func answerSize(pdu []byte) (int, bool) {
	if len(pdu) < 4 {
		return 0, false
	}
	if pdu[0] == funcIdentify {
		return identifyAhead, pdu[1] == meiIdentify
	}
	if len(pdu) < 5 {
		return 0, false
	}
	n := int(binary.BigEndian.Uint16(pdu[3:]))
	switch pdu[0] {
	case gomodbus.FuncCodeReadCoils, gomodbus.FuncCodeReadDiscreteInputs:
		return 2 + (n+7)/8, true
	case gomodbus.FuncCodeReadHoldingRegisters, gomodbus.FuncCodeReadInputRegisters, gomodbus.FuncCodeReadWriteMultipleRegisters:
		return 2 + 2*n, true
	case gomodbus.FuncCodeWriteSingleCoil, gomodbus.FuncCodeWriteSingleRegister,
		gomodbus.FuncCodeWriteMultipleCoils, gomodbus.FuncCodeWriteMultipleRegisters:
		return 5, true
	case gomodbus.FuncCodeMaskWriteRegister:
		return 7, true
	}
	return 0, false
}

// foundSize is how long the PDU at the start of b is, if it answers the request: 0 as long as b does not tell, -1 if it
// does not.
func foundSize(request, b []byte) int {
	if len(b) == 0 {
		return 0
	}
	want, ok := answerSize(request)
	switch {
	case b[0] == request[0]|exceptionBit:
		return 2
	case !ok || b[0] != request[0]:
		return -1
	case request[0] != funcIdentify:
		return want
	case len(b) < want:
		return 0
	}
	n := want
	for range b[6] {
		if len(b) < n+2 {
			return 0
		}
		if n += 2 + int(b[n+1]); n > maxPDU {
			return -1
		}
	}
	return n
}

// reads reports whether the request only reads.
func reads(pdu []byte) bool {
	return pdu[0] >= gomodbus.FuncCodeReadCoils && pdu[0] <= gomodbus.FuncCodeReadInputRegisters || pdu[0] == funcIdentify
}

// answers reports whether the PDU of a frame answers the request: its function, its length and its count are those
// that were asked for, and a write is repeated as it was sent. goburrow's client compares neither count nor function.
// What a quirk of the device forgives is put right in pdu.
func answers(request, pdu []byte, q *Quirks) bool {
	if len(pdu) == 2 && pdu[0] == request[0]|exceptionBit {
		return true
	}
	if len(pdu) == 0 || pdu[0] != request[0] || foundSize(request, pdu) != len(pdu) {
		return false
	}
	switch {
	case request[0] == funcIdentify:
		return pdu[1] == meiIdentify
	case reads(request) || request[0] == gomodbus.FuncCodeReadWriteMultipleRegisters:
		if q.AnyCount {
			pdu[1] = byte(len(pdu) - 2)
		}
		return int(pdu[1]) == len(pdu)-2
	case q.AnyAnswer:
		copy(pdu, request)
	}
	return bytes.Equal(pdu, request[:len(pdu)])
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

// rtuFrame finds the answer to the request, a unit and a PDU, in what a line brought, and gives its unit and PDU: the
// noise before it, a lost frame's end or the zeros that some converters send are passed over. It returns nil while there
// is none.
func rtuFrame(request, b []byte, q *Quirks) []byte {
	for i := 0; i+2 < len(b); i++ {
		if b[i] != request[0] && !q.AnyUnit {
			continue
		}
		n := 1 + foundSize(request[1:], b[i+1:])
		if n <= 1 || len(b)-i < n+crcSize {
			continue
		}
		sum := crc16(b[i : i+n])
		if q.CRCSwapped {
			sum = sum>>8 | sum<<8
		}
		if sum == binary.LittleEndian.Uint16(b[i+n:]) && answers(request[1:], b[i+1:i+n], q) {
			return b[i : i+n]
		}
	}
	return nil
}

// The characters around an ASCII frame (Serial Line, 2.5.2).
const asciiStart = ':'

var asciiEnd = []byte("\r\n")

// asciiFrame finds the answer to the request, a unit and a PDU, among the lines of b, and gives its unit and PDU, in dst.
// It returns nil while there is none.
func asciiFrame(dst, request, b []byte, q *Quirks) []byte {
	for {
		line, rest, ended := bytes.Cut(b, asciiEnd)
		if !ended {
			return nil
		}
		b = rest
		line = line[bytes.LastIndexByte(line, asciiStart)+1:]
		if len(line) > 2*cap(dst) {
			continue
		}
		n, err := hex.Decode(dst[:cap(dst)], line)
		if err != nil || n < 4 || lrc(dst[:n]) != 0 {
			continue
		}
		adu := dst[:n-1]
		if (adu[0] == request[0] || q.AnyUnit) && answers(request[1:], adu[1:], q) {
			return adu
		}
	}
}

// appendASCII appends the frame of a unit and a PDU.
func appendASCII(dst, adu []byte) []byte {
	dst = append(dst, asciiStart)
	for _, b := range adu {
		dst = appendHex(dst, b)
	}
	return append(appendHex(dst, lrc(adu)), asciiEnd...)
}

func appendHex(dst []byte, b byte) []byte {
	const digits = "0123456789ABCDEF"
	return append(dst, digits[b>>4], digits[b&15])
}

// lrc is the check sum of Serial Line, 2.5.2.2: with it the sum of all bytes is zero.
func lrc(b []byte) (sum byte) {
	for _, v := range b {
		sum -= v
	}
	return sum
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
