package channel

import (
	"testing"
	"testing/synctest"
	"time"
)

// There is a crowd when another connection was served a moment ago, and none for a connection that is alone, however
// often it is served.
func TestCrowd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := crowd{since: time.Now()}
		time.Sleep(time.Second)
		for i, row := range []struct {
			after  time.Duration
			number uint64
			want   bool
		}{
			{0, 1, false}, // nobody was served before
			{recent / 2, 1, false},
			{recent / 2, 2, true},
			{recent / 2, 2, false},
			{recent / 2, 1, true},
			{recent * 2, 2, false}, // the other has been gone for longer
			{recent / 2, 1, true},
		} {
			time.Sleep(row.after)
			if got := c.others(row.number); got != row.want {
				t.Errorf("row %d: %v", i, got)
			}
		}
	})
}
