package port

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What the kernel reads: struct serial_rs485 of linux/serial.h.
func TestE4RS485Struct(t *testing.T) {
	for _, row := range []struct {
		r    RS485
		want [3]uint32
	}{
		{RS485{On: true}, [3]uint32{0b011, 0, 0}},
		{RS485{On: true, Inverted: true}, [3]uint32{0b101, 0, 0}},
		{RS485{On: true, Before: time.Millisecond, After: 20 * time.Millisecond}, [3]uint32{0b011, 1, 20}},
	} {
		b := row.r.encode()
		for i := range len(b) / 4 {
			want := uint32(0)
			if i < len(row.want) {
				want = row.want[i]
			}
			if got := binary.NativeEndian.Uint32(b[4*i:]); got != want {
				t.Errorf("%+v: word %d is %#x, want %#x", row.r, i, got, want)
			}
		}
	}
}

func TestE4RS485WhereTheDriverCannot(t *testing.T) {
	master, path := newPTY(t)
	defer master.Close()
	open := func(r RS485) error {
		p, err := Address{Scheme: "rtu", Path: path, Mode: DefaultMode, RS485: r}.Open(t.Context())
		if err == nil {
			p.Close()
		}
		return err
	}
	if err := open(RS485{On: true}); err == nil || !strings.Contains(err.Error(), "does not drive the direction of RS-485") {
		t.Errorf("%v", err)
	}
	if err := open(RS485{}); err != nil {
		t.Errorf("the line was not given back: %v", err)
	}
}

func TestE5LineOfAnotherProgram(t *testing.T) {
	t.Run("TIOCEXCL stops root too", func(t *testing.T) {
		master, path := newPTY(t)
		defer master.Close()
		other, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if err := unix.IoctlSetInt(int(other.Fd()), unix.TIOCEXCL, 0); err != nil {
			t.Fatal(err)
		}
		_, err = Address{Scheme: "rtu", Path: path, Mode: DefaultMode}.Open(t.Context())
		if err == nil || !strings.Contains(err.Error(), "in use by another program") {
			t.Errorf("%v", err)
		}
	})
	t.Run("it is named", func(t *testing.T) {
		master, path := newPTY(t)
		defer master.Close()
		held, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOCTTY, 0)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sleep", "60")
		cmd.ExtraFiles = []*os.File{held}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { cmd.Process.Kill(); cmd.Wait(); held.Close() }()
		waitFor(t, func() bool { return holder(path) == " (sleep, process "+strconv.Itoa(cmd.Process.Pid)+")" })
	})
	t.Run("lock file", func(t *testing.T) {
		dir := t.TempDir()
		line := filepath.Join(dir, "ttyX")
		lock := func(text string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, "LCK..ttyX"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if pid := lockFile(dir, line); pid != 0 {
			t.Errorf("no file: %d", pid)
		}
		parent := os.Getppid()
		for text, want := range map[string]int{
			"         " + strconv.Itoa(parent) + "\n": parent,
			strconv.Itoa(os.Getpid()):                 0,
			"4194305":                                 0, // above the largest pid
			"x":                                       0,
		} {
			if lock(text); lockFile(dir, line) != want {
				t.Errorf("%q: %d", text, lockFile(dir, line))
			}
		}
	})
}
