//go:build !linux

package bench

// descriptors leaves the number of connections to the system.
func descriptors(int) error { return nil }
