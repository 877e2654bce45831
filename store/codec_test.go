package store

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"edged/drivers/tag"
)

var began = tag.TimeOf(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))

// encode writes samples in runs of perRun.
func encode(samples []tag.Sample, perRun int) *chunk {
	c := &chunk{}
	for i := range samples {
		c.add(&samples[i])
		if (i+1)%perRun == 0 {
			c.closeRun()
		}
	}
	c.closeRun()
	return c
}

func decode(t interface{ Fatalf(string, ...any) }, runs []byte) []tag.Sample {
	var out []tag.Sample
	d := decoder{b: runs}
	for {
		var s tag.Sample
		ok, err := d.next(&s)
		if err != nil {
			t.Fatalf("after %d samples: %v", len(out), err)
		}
		if !ok {
			return out
		}
		out = append(out, s)
	}
}

func same(a, b *tag.Sample) bool {
	return a.At == b.At && a.Status == b.Status && a.Value.Equal(b.Value)
}

func checkSame(t interface{ Fatalf(string, ...any) }, got, want []tag.Sample) {
	if len(got) != len(want) {
		t.Fatalf("%d samples, want %d", len(got), len(want))
	}
	for i := range got {
		if !same(&got[i], &want[i]) {
			t.Fatalf("sample %d is %v %v %v, want %v %v %v", i, got[i].At, got[i].Status, got[i].Value, want[i].At, want[i].Status, want[i].Value)
		}
	}
}

// series makes n samples of a signal, so far apart, each up to jitter late.
func series(n int, step, jitter time.Duration, signal func(i int) tag.Value) []tag.Sample {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]tag.Sample, n)
	for i := range out {
		at := began.Add(time.Duration(i) * step)
		if jitter > 0 {
			at = at.Add(time.Duration(r.Int64N(int64(jitter))))
		}
		out[i] = tag.Sample{Value: signal(i), At: at}
	}
	return out
}

// The measure: at most 4 bytes a sample for a slowly moving float at a steady rate, all that the log needs included
// where ten samples come a commit.
func TestBytesASample(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	walk := 60.0
	drift := func() float64 { walk += r.NormFloat64() * 0.02; return walk }
	for _, c := range []struct {
		name   string
		jitter time.Duration
		signal func(int) tag.Value
		most   float64
	}{
		{"float32 sine of a minute", 0, func(i int) tag.Value { return tag.Of(float32(55 + 35*math.Sin(float64(i)*2*math.Pi/60))) }, 4},
		{"float32 sine of an hour", 0, func(i int) tag.Value { return tag.Of(float32(55 + 35*math.Sin(float64(i)*2*math.Pi/3600))) }, 4},
		{"float32 sine of an hour, 50 us late", 50 * time.Microsecond, func(i int) tag.Value { return tag.Of(float32(55 + 35*math.Sin(float64(i)*2*math.Pi/3600))) }, 4},
		{"float32 drifting", 0, func(int) tag.Value { return tag.Of(float32(drift())) }, 4},
		{"float32 drifting, 50 us late", 50 * time.Microsecond, func(int) tag.Value { return tag.Of(float32(drift())) }, 4},
		{"double of tenths", 0, func(int) tag.Value { return tag.Of(math.Round(drift()*10) / 10) }, 1.5},
		{"double of hundredths, 50 us late", 50 * time.Microsecond, func(int) tag.Value { return tag.Of(math.Round(drift()*100) / 100) }, 2.5},
		{"counter", 0, func(i int) tag.Value { return tag.Of(uint32(i)) }, 1},
		{"bool", 0, func(i int) tag.Value { return tag.Of(i%2 == 0) }, 1.2},
	} {
		samples := series(3600, time.Second, c.jitter, c.signal)
		k := encode(samples, 10)
		checkSame(t, decode(t, k.runs), samples)
		perSample := float64(len(k.runs)) / float64(len(samples))
		t.Logf("%-40s %.2f bytes a sample", c.name, perSample)
		if perSample > c.most {
			t.Errorf("%s: %.2f bytes a sample, want at most %v", c.name, perSample, c.most)
		}
	}
}

func TestEveryFormOfValue(t *testing.T) {
	values := []tag.Value{
		{}, tag.Of(true), tag.Of(false), tag.Of(int8(-128)), tag.Of(uint8(255)), tag.Of(int16(-32768)), tag.Of(uint16(65535)),
		tag.Of(int32(math.MinInt32)), tag.Of(uint32(math.MaxUint32)), tag.Of(int64(math.MinInt64)), tag.Of(int64(math.MaxInt64)),
		tag.Of(uint64(math.MaxUint64)), tag.Of(uint64(0)),
		tag.Of(float32(0)), tag.Of(float32(math.Copysign(0, -1))), tag.Of(float32(math.Inf(1))), tag.Of(float32(math.NaN())),
		tag.Of(math.SmallestNonzeroFloat32), tag.Of(float32(math.MaxFloat32)), tag.Of(float32(-math.MaxFloat32)),
		tag.Of(0.0), tag.Of(math.Copysign(0, -1)), tag.Of(math.Inf(-1)), tag.Of(math.NaN()), tag.FromBits(tag.Float64, 0xFFF8000000000001),
		tag.Of(math.MaxFloat64), tag.Of(-math.MaxFloat64), tag.Of(6.8), tag.Of(0.1 + 0.2), tag.Of(9007199254740993.0),
		tag.Of(""), tag.Of("kg"), tag.Of("kgs"), tag.Of(tag.MaxTime), tag.Of(tag.BadTimeout),
		tag.OfBytes(nil), tag.OfBytes([]byte{}), tag.OfBytes([]byte{0, 1}), tag.OfRaw([]byte{1, 1}),
		tag.OfSlice([]bool{true, false}), tag.OfSlice([]int8{-1}), tag.OfSlice([]uint8{1, 2}), tag.OfSlice([]int16{-1, 2}),
		tag.OfSlice([]uint16{1, 2}), tag.OfSlice([]int32{-1}), tag.OfSlice([]uint32{1}), tag.OfSlice([]int64{-1}),
		tag.OfSlice([]uint64{1 << 63}), tag.OfSlice([]float32{1.5}), tag.OfSlice([]float64{-2.5, math.Inf(1)}), tag.OfSlice([]float64{}),
		tag.OfSlice([]tag.Time{1, 2}), tag.OfSlice([]tag.Status{tag.BadTimeout}), tag.OfSlice([]string{"a", "", "bc"}),
		tag.OfSlice([]string{}), tag.OfSlice([][]byte{nil, {}, {1}}),
	}
	var samples []tag.Sample
	for i, v := range append(values, values...) {
		status := tag.Good
		if i%5 == 0 {
			status = tag.UncertainNoCommunicationLastUsableValue
		}
		samples = append(samples, tag.Sample{Value: v, Status: status, At: began + tag.Time(i*i)}, tag.Sample{Value: v, At: began + tag.Time(i*i)})
	}
	checkSame(t, decode(t, encode(samples, 7).runs), samples)
	for i := range samples {
		f := fields{b: appendLast(nil, &samples[i])}
		if got := f.last(); f.bad || len(f.b) > 0 || !same(&got, &samples[i]) {
			t.Errorf("%v comes back as %v", samples[i].Value, got.Value)
		}
	}
}

func anyValue(t *rapid.T) tag.Value {
	switch rapid.IntRange(0, 9).Draw(t, "form") {
	case 0:
		return tag.Value{}
	case 1:
		return tag.Of(rapid.String().Draw(t, "text"))
	case 2:
		return tag.OfSlice(rapid.SliceOf(rapid.Int16()).Draw(t, "array"))
	case 3:
		return tag.Of(rapid.Float32().Draw(t, "float32"))
	case 4:
		return tag.FromBits(tag.Float64, rapid.Uint64().Draw(t, "bits"))
	case 5:
		return tag.Of(float64(rapid.IntRange(-100000, 100000).Draw(t, "decimal")) / 100)
	case 6:
		return tag.Of(rapid.Int64().Draw(t, "int64"))
	case 7:
		return tag.OfBytes(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
	case 8:
		return tag.Of(rapid.Bool().Draw(t, "bool"))
	}
	return tag.Of(rapid.Uint16().Draw(t, "uint16"))
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 60).Draw(t, "samples")
		var samples []tag.Sample
		v, at := anyValue(t), began
		for range n {
			if rapid.IntRange(0, 3).Draw(t, "another") == 0 {
				v = anyValue(t)
			}
			at += tag.Time(rapid.Int64Range(-1e8, 1e9).Draw(t, "step"))
			status := rapid.SampledFrom([]tag.Status{tag.Good, tag.Good, tag.BadNoCommunication, 0xFFFFFFFF}).Draw(t, "status")
			samples = append(samples, tag.Sample{Value: v, Status: status, At: at})
		}
		c := encode(samples, rapid.IntRange(1, 20).Draw(t, "perRun"))
		checkSame(t, decode(t, c.runs), samples)
	})
}

// A decoder never panics nor takes memory beyond its input, and what it took it writes again.
func FuzzChunk(f *testing.F) {
	f.Add(encode(series(20, time.Second, time.Millisecond, func(i int) tag.Value { return tag.Of(float64(i) / 10) }), 7).runs)
	f.Add(encode(series(5, time.Second, 0, func(i int) tag.Value { return tag.Of("text") }), 2).runs)
	f.Add(encode(series(5, time.Second, 0, func(i int) tag.Value { return tag.OfSlice([]string{"a", "b"}) }), 2).runs)
	f.Add(encode(series(5, time.Second, 0, func(i int) tag.Value { return tag.Value{} }), 2).runs)
	f.Fuzz(func(t *testing.T, runs []byte) {
		d := decoder{b: bytes.Clone(runs)}
		var got []tag.Sample
		for len(got) < 10_000 {
			var s tag.Sample
			ok, err := d.next(&s)
			if err != nil || !ok {
				break
			}
			got = append(got, s)
		}
		checkSame(t, decode(t, encode(got, 5).runs), got)
	})
}

// FuzzLast reads last values of any bytes.
func FuzzLast(f *testing.F) {
	s := tag.Sample{Value: tag.Of(6.8), At: began}
	f.Add(appendLast(nil, &s))
	s.Value = tag.OfSlice([]string{"a"})
	f.Add(appendLast(nil, &s))
	f.Fuzz(func(t *testing.T, b []byte) {
		in := fields{b: b}
		if s := in.last(); !in.bad {
			out := fields{b: appendLast(nil, &s)}
			if again := out.last(); out.bad || !same(&s, &again) {
				t.Fatalf("%v comes back as %v", s, again)
			}
		}
	})
}

func BenchmarkAdd(b *testing.B) {
	samples := series(10_000, time.Second, 50*time.Microsecond, func(i int) tag.Value { return tag.Of(float32(55 + 35*math.Sin(float64(i)/600))) })
	c := &chunk{}
	b.ReportAllocs()
	for i := range b.N {
		c.add(&samples[i%len(samples)])
		if i%10_000 == 0 {
			c.closeRun()
			c.runs = c.runs[:0]
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	samples := series(10_000, time.Second, 50*time.Microsecond, func(i int) tag.Value { return tag.Of(float32(55 + 35*math.Sin(float64(i)/600))) })
	runs := encode(samples, 10).runs
	b.ReportAllocs()
	var s tag.Sample
	for n := 0; n < b.N; {
		d := decoder{b: runs}
		for ok := true; ok && n < b.N; n++ {
			ok, _ = d.next(&s)
		}
	}
}
