package bench

import (
	"math"
	"syscall"
	"unsafe"
)

// cpuClock is the CPU time of a process in seconds by its clock, which counts nanoseconds where /proc counts hundredths;
// NaN if there is none.
func cpuClock(pid int) float64 {
	const ofProcess = 2 // CPUCLOCK_SCHED, of all threads: see clock_getcpuclockid(3)
	var t syscall.Timespec
	clock := uintptr(uint32(int32(^pid)<<3 | ofProcess))
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&t)), 0); errno != 0 {
		return math.NaN()
	}
	return float64(t.Sec) + float64(t.Nsec)/1e9
}
