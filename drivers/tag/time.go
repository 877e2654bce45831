package tag

import "time"

// Time is a moment in UTC as OPC UA counts it: 100 ns since 1601-01-01 (Part 6, 5.2.2.5). Zero is "not known".
// It is a number, unlike time.Time, so that a Sample holds no second pointer and is copied to the wire as it is.
type Time int64

const (
	ticksPerSecond = 10_000_000
	unixEpoch      = Time(11_644_473_600 * ticksPerSecond)
	// MaxTime is the last second of 9999-12-31, above which a time is encoded as the largest Int64 (Part 6, 5.2.2.5).
	MaxTime = Time(2_650_467_743_990_000_000)
)

// Now is the current time.
func Now() Time { return TimeOf(time.Now()) }

// TimeOf converts t. A zero time.Time, and one before 1601, is zero.
func TimeOf(t time.Time) Time {
	if t.IsZero() {
		return 0
	}
	v := unixEpoch + Time(t.Unix())*ticksPerSecond + Time(t.Nanosecond()/100)
	if v < 0 {
		return 0
	}
	return min(v, MaxTime)
}

// Time converts t to UTC. Zero gives the zero time.Time.
func (t Time) Time() time.Time {
	if t == 0 {
		return time.Time{}
	}
	d := t - unixEpoch
	s, f := d/ticksPerSecond, d%ticksPerSecond
	if f < 0 {
		s, f = s-1, f+ticksPerSecond
	}
	return time.Unix(int64(s), int64(f)*100).UTC()
}

// Add returns t+d, in steps of 100 ns.
func (t Time) Add(d time.Duration) Time { return t + Time(d/100) }

// Sub returns t-u. Differences beyond 292 years are cut to that.
func (t Time) Sub(u Time) time.Duration {
	const limit = Time(1<<63-1) / 100
	return time.Duration(max(-limit, min(limit, t-u))) * 100
}

// IsZero reports whether the time is not known.
func (t Time) IsZero() bool { return t == 0 }

// String is the time in RFC 3339 with milliseconds.
func (t Time) String() string {
	if t == 0 {
		return "never"
	}
	return t.Time().Format("2006-01-02T15:04:05.000Z07:00")
}
