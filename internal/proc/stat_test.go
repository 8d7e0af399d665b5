package proc

import (
	"strings"
	"testing"
	"time"
)

// A line of Linux 6.1, with the number of each field by proc(5) where this package reads it: 14 to 17 are times, 20 threads, 22 start.
const statLine = "4242 (%s) S 4000 4100 3999 0 -1 4194304 900 0 0 0 14 15 16 17 20 0 20 0 2200 1000000 300 18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0 1 2 3 4 5 6 7 0\n"

func TestParseStat(t *testing.T) {
	for _, name := range []string{"sleep", "", "a b", ") R 1 2 3 (", "((", "))", "line\nend", "\xff\xfe"} {
		s, err := parseStat([]byte(strings.Replace(statLine, "%s", name, 1)))
		want := stat{pid: 4242, parent: 4000, group: 4100, threads: 20, name: name, state: 'S', start: 2200, cpu: 620 * time.Millisecond}
		if err != nil || s != want {
			t.Errorf("%q: %+v, %v; want %+v", name, s, err, want)
		}
	}
	kernel := "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0"
	if s, err := parseStat([]byte(kernel)); err != nil || !s.kernel {
		t.Errorf("a kernel thread: %+v, %v", s, err)
	}
	for _, bad := range []string{"", "1", "(x) S 1", "1 (x", "1 x) S", ")1(", "1 (x) S 1 2 3", "x (x) " + strings.Repeat("1 ", 30), "-1 (x) S" + strings.Repeat(" 1", 30), "1 (x) SS" + strings.Repeat(" 1", 30), "1 (x) S" + strings.Repeat(" x", 30)} {
		if s, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was read as %+v", bad, s)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte(statLine))
	f.Fuzz(func(t *testing.T, text []byte) {
		if s, err := parseStat(text); err == nil && s.pid < 1 {
			t.Errorf("process %d", s.pid)
		}
	})
}
