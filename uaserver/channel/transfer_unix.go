//go:build unix && !(linux && (amd64 || arm64 || arm || riscv64))

package channel

import "syscall"

// receive reads from a socket that does not block.
func receive(fd uintptr, b []byte) (int, syscall.Errno) { return transferred(syscall.Read(int(fd), b)) }

// transmit writes to a socket that does not block.
func transmit(fd uintptr, b []byte) (int, syscall.Errno) {
	return transferred(syscall.Write(int(fd), b))
}

func transferred(n int, err error) (int, syscall.Errno) {
	if err == nil {
		return n, 0
	}
	if errno, ok := err.(syscall.Errno); ok {
		return 0, errno
	}
	return 0, syscall.EIO
}
