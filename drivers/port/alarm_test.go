package port

import (
	"slices"
	"testing"
	"time"
)

func TestAlarm(t *testing.T) {
	a, err := NewAlarm()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Wait(time.Now().Add(-time.Second)); err != nil {
		t.Error(err)
	}
	var late []time.Duration
	for range 20 {
		until := time.Now().Add(1300 * time.Microsecond)
		if err := a.Wait(until); err != nil {
			t.Fatal(err)
		}
		late = append(late, time.Since(until))
	}
	// The best of many: how late the rest is tells of the machine's load.
	if first := slices.Min(late); first < 0 || first > time.Millisecond {
		t.Errorf("%v late at best", first)
	}
	ended := make(chan error)
	go func() { ended <- a.Wait(time.Now().Add(time.Hour)) }()
	time.Sleep(10 * time.Millisecond)
	a.Close()
	if err := <-ended; err == nil {
		t.Error("a closed alarm rang")
	}
}
