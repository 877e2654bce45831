package address

import (
	"runtime"
	"testing"
	"time"
)

func TestCoreStartsFastAndSmall(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	s, err := New("urn:test")
	took := time.Since(start)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	t.Logf("%d nodes in %v, %d bytes of heap", s.Len(), took, after.HeapAlloc-before.HeapAlloc)
	runtime.KeepAlive(s)
}
