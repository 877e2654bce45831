package sim

import (
	"bytes"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func TestASCII(t *testing.T) {
	rows := []struct {
		name, ask, want string
		fault           Fault
	}{
		// 3 + 0 + 0 + 0 + 2 + 1 = 6; the check sum is its complement (Serial Line V1.02, 2.5.2.2).
		{"2.5.2 read", ":010300000002FA\r\n", "same", Fault{}},
		{"small letters", ":010300000002fa\r\n", "same", Fault{}},
		{"a colon begins anew", ":0103:010300000002FA\r\n", "same", Fault{}},
		{"junk before", "xyz\r\n:010300000002FA\r\n", "same", Fault{}},
		{"wrong check sum", ":010300000002FB\r\n", "", Fault{}},
		{"another unit", ":020300000002F9\r\n", "", Fault{}},
		{"no digits", ":01030000000GFA\r\n", "", Fault{}},
		{"fault crc", ":010300000002FA\r\n", "other", Fault{Kind: BadCRC}},
		{"fault mute", ":010300000002FA\r\n", "", Fault{Kind: Mute}},
		{"fault cut", ":010300000002FA\r\n", "half", Fault{Kind: Cut}},
	}
	good := string(appendASCII(nil, 1, []byte{3, 4, 0, 0x64, 0, 0x65}))
	if good != ":010304006400652F\r\n" {
		t.Fatalf("the good answer is %q", good)
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, err := New(small("ascii:"))
				if err != nil {
					t.Fatal(err)
				}
				near, far := net.Pipe()
				go p.Line("line").ServeASCII(far)
				if row.fault.Kind != "" {
					p.Device("device").Fault(row.fault)
				}
				got, err := ask(t, near, []byte(row.ask), 64)
				if !isTimeout(err) {
					t.Errorf("the connection did not stay: %v", err)
				}
				switch row.want {
				case "":
					if len(got) != 0 {
						t.Errorf("got %q", got)
					}
				case "other":
					if len(got) != len(good) || string(got) == good {
						t.Errorf("got %q", got)
					}
				case "half":
					if string(got) != good[:(len(good)+1)/2] {
						t.Errorf("got %q", got)
					}
				default:
					if string(got) != good {
						t.Errorf("got %q, want %q", got, good)
					}
				}
				near.Close()
				p.Close()
				synctest.Wait()
			})
		})
	}
}

func FuzzParseASCII(f *testing.F) {
	f.Add([]byte(":010300000002FA"))
	f.Add([]byte(":::"))
	f.Fuzz(func(t *testing.T, line []byte) {
		var decoded [maxASCII]byte
		adu, ok := parseASCII(decoded[:], line)
		if ok && (len(adu) < 2 || !bytes.HasSuffix(bytes.ToUpper(append(line, '\r', '\n')), appendASCII(nil, adu[0], adu[1:]))) {
			t.Fatalf("% X of %q", adu, line)
		}
	})
}

// A late answer comes when the next request may already have been answered.
func TestLateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := New(small("tcp://127.0.0.1:0"))
		if err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		go p.Line("line").ServeTCP(far)
		p.Device("device").Fault(Fault{Kind: Late, For: 150 * time.Millisecond, Times: 1})
		if got, err := ask(t, near, readTwo, 64); len(got) != 0 || !isTimeout(err) {
			t.Errorf("got % X, %v", got, err)
		}
		second := bytes.Clone(readTwo)
		second[1] = 8
		got, _ := ask(t, near, second, 64)
		want := append(unhex(t, "0008 0000 0007 01 03 04 0064 0065"), unhex(t, "0007 0000 0007 01 03 04 0064 0065")...)
		if !bytes.Equal(got, want) {
			t.Errorf("got % X, want % X", got, want)
		}
		near.Close()
		p.Close()
		synctest.Wait()
	})
}
