package rundir

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSignsOfAnAttempt(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	for range 2 {
		_, err := d.ClaimAttempt()
		must(t, err)
	}
	touch := func(attempt int, at time.Time) {
		path := filepath.Join(d.LogsPath(attempt), "n1.0.out")
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, nil, 0o600))
		must(t, os.Chtimes(path, at, at))
	}
	tell := func(attempt int, at time.Time) {
		text, err := at.MarshalText()
		must(t, err)
		must(t, os.WriteFile(d.MetricsPath(), fmt.Appendf(nil, `{"time":%q,"attempt":%d,"step":7}`, text, attempt), 0o600))
	}
	for _, test := range []struct {
		name string
		do   func()
		want [2]time.Time // of each attempt
		step [2]int64
	}{
		{"nothing", func() {}, [2]time.Time{}, [2]int64{}},
		{"output", func() { touch(1, noon) }, [2]time.Time{noon, {}}, [2]int64{}},
		{"a step, later", func() { tell(1, noon.Add(time.Hour)) }, [2]time.Time{noon.Add(time.Hour), {}}, [2]int64{7, 0}},
		{"output of the next", func() { touch(2, noon.Add(3*time.Hour)) }, [2]time.Time{noon.Add(time.Hour), noon.Add(3 * time.Hour)}, [2]int64{7, 0}},
		{"a step of the next, earlier", func() { tell(2, noon.Add(2*time.Hour)) }, [2]time.Time{noon, noon.Add(3 * time.Hour)}, [2]int64{0, 7}},
	} {
		test.do()
		for i, want := range test.want {
			if got, err := d.LastSign(i + 1); err != nil || !got.Equal(want) {
				t.Errorf("%s: the last sign of attempt %d is of %v, %v; want %v", test.name, i+1, got, err, want)
			}
			if got, err := d.StepOf(i + 1); err != nil || got != test.step[i] {
				t.Errorf("%s: the step of attempt %d is %d, %v; want %d", test.name, i+1, got, err, test.step[i])
			}
		}
	}
	if _, err := d.LastSign(3); err == nil {
		t.Error("an attempt that was never claimed has left a sign")
	}
}
