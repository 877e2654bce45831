package bench

import (
	"fmt"
	"syscall"
)

// otherDescriptors are those that the bench has open beside one a session.
const otherDescriptors = 64

// descriptors checks that the system allows as many connections. Go has raised the limit as far as it may.
func descriptors(sessions int) error {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err == nil && uint64(sessions+otherDescriptors) > l.Cur {
		return fmt.Errorf("%d sessions need %d file descriptors and the system allows %d: raise the limit (ulimit -n), or give fewer with --sessions",
			sessions, sessions+otherDescriptors, l.Cur)
	}
	return nil
}
