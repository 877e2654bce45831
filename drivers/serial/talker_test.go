package serial

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/creack/pty"
	"go.uber.org/goleak"
)

// A talker of a process of its own: what it costs to talk is not counted.
const talkerLine, talkerEvery = "SERIAL_TALKER_LINE", "SERIAL_TALKER_EVERY"

func TestMain(m *testing.M) {
	if line := os.Getenv(talkerLine); line != "" {
		every, _ := time.ParseDuration(os.Getenv(talkerEvery))
		to := os.NewFile(3, "pty")
		for next := time.Now(); ; {
			next = next.Add(every)
			time.Sleep(time.Until(next))
			if _, err := to.WriteString(line); err != nil {
				os.Exit(0)
			}
		}
	}
	goleak.VerifyTestMain(m)
}

// talker makes a pseudo terminal and, when talk is called, a process that says a line on it so often until the test ends.
func talker(t *testing.T, line string, every time.Duration) (path string, talk func()) {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close(); slave.Close() })
	return slave.Name(), func() {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), talkerLine+"="+line, talkerEvery+"="+every.String())
		cmd.ExtraFiles = []*os.File{master}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	}
}
