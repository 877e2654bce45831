//go:build unix && (race || !(linux && (amd64 || arm64 || arm || riscv64)))

package channel

import "syscall"

// Here the scheduler is told of system calls, and so is the race detector, to which an answer that came through a socket
// then proves that its request was sent before.

// remainder reads a socket that does not block. Whether it was drained is not known here.
type remainder struct{}

func (*remainder) attach(uintptr) {}

func (*remainder) receive(fd uintptr, b []byte) (int, bool, syscall.Errno) {
	n, errno := transferred(syscall.Read(int(fd), b))
	return n, false, errno
}

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
