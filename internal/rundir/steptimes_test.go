package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// stepLine returns a complete line of two ranks.
func stepLine(attempt int, step int64) StepTimes {
	return StepTimes{
		Time: noon, Attempt: attempt, Step: step, WindowS: 60, Hosts: []string{"n1", "n2"},
		StepS: Seconds{0.25, 0.5}, ComputeS: Seconds{0.125, 0.5}, InputS: Seconds{0, 0}, CommS: Seconds{0.125, 0},
		Stragglers: []Straggler{{Rank: 1, Host: "n2", Times: 4, Part: PartCompute}},
	}
}

func TestStepTimesAreReadAsTheyWereWritten(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	if got, err := d.StepTimes(10); err != nil || got != nil {
		t.Errorf("without a file: %v, %v", got, err)
	}
	_, err := d.ClaimAttempt()
	must(t, err)
	first, second, third := stepLine(1, 10), stepLine(1, 20), stepLine(1, 30)
	second.Hosts = nil
	third.ComputeS, third.InputS, third.CommS, third.Stragglers, third.Hosts = nil, nil, nil, nil, nil
	for _, s := range []StepTimes{first, second} {
		_, err := d.AppendStepTimes(s, time.Hour)
		must(t, err)
	}
	f, err := os.OpenFile(d.StepTimesPath(), os.O_APPEND|os.O_WRONLY, 0) // a write that was cut short stays on its own line
	must(t, err)
	_, err = f.WriteString(`{"time":"2026`)
	must(t, errors.Join(err, f.Close()))
	_, err = d.AppendStepTimes(third, time.Hour)
	must(t, err)

	second.Hosts, third.Hosts = first.Hosts, first.Hosts // the lines share them
	want := []StepTimes{first, second, third}
	for _, most := range []int{0, 1, 2, 3, math.MaxInt} {
		got, err := d.StepTimes(most)
		if err != nil || !reflect.DeepEqual(got, append([]StepTimes(nil), want[len(want)-min(most, 3):]...)) {
			t.Errorf("%d lines: %+v, %v", most, got, err)
		}
	}

	_, err = d.ClaimAttempt()
	must(t, err)
	if _, err := d.AppendStepTimes(stepLine(1, 40), time.Hour); !errors.Is(err, ErrSuperseded) {
		t.Errorf("an attempt that was superseded: %v", err)
	}
	if got, err := d.StepTimes(10); err != nil || len(got) != 3 {
		t.Errorf("it has written: %v, %v", got, err)
	}
}

// TestStepTimesOfOtherHosts: a line without hosts does not get them from the lines of another attempt.
func TestStepTimesOfOtherHosts(t *testing.T) {
	other := stepLine(2, 5)
	other.Hosts = nil
	var data []byte
	for _, s := range []StepTimes{stepLine(1, 3), other} {
		line, err := json.Marshal(s)
		must(t, err)
		data = append(append(data, line...), '\n')
	}
	for most := range 3 {
		for _, s := range parseStepTimes(data, most) {
			if (s.Hosts != nil) != (s.Attempt == 1) {
				t.Errorf("attempt %d has the hosts %q", s.Attempt, s.Hosts)
			}
		}
	}
}

func TestSecondsHaveThreeDigits(t *testing.T) {
	got, err := json.Marshal(Seconds{0.123456, 1234.5, 0, -1, math.NaN(), math.Inf(1), 0.000001234, 9.999})
	if want := "[0.123,1.23e+03,0,0,0,0,1.23e-06,10]"; err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

// TestStepTimesStayBounded: whatever the number of ranks, the file of a two-week run stays small, and a short run has many windows.
func TestStepTimesStayBounded(t *testing.T) {
	for _, ranks := range []int{1, 8, 512, 4096} {
		line := stepLine(1, 1_000_000)
		value := make(Seconds, ranks)
		for i := range value {
			value[i] = 0.0123
		}
		line.StepS, line.ComputeS, line.InputS, line.CommS, line.Hosts = value, value, value, value, nil
		text, err := json.Marshal(line)
		must(t, err)
		size, lines := int64(0), 0
		for age := time.Duration(0); age < 14*24*time.Hour; lines++ {
			size += int64(len(text))
			age += stepWindowAfter(size, age)
			if lines == 15 && age > 2*time.Minute {
				t.Errorf("%d ranks: 15 windows take %v", ranks, age)
			}
		}
		if size > maxStepTimes-maxStepLine {
			t.Errorf("%d ranks: %d lines of two weeks take %d bytes", ranks, lines, size)
		}
	}
	if got := stepWindowAfter(math.MaxInt64, math.MaxInt64); got <= 0 || got > 30*24*time.Hour {
		t.Errorf("in a file of any size a window lasts %v", got)
	}
}

// TestStepTimesOfManyRanks: even with many ranks, the first line of an attempt has a host for each rank.
func TestStepTimesOfManyRanks(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	_, err := d.ClaimAttempt()
	must(t, err)
	line := stepLine(1, 1)
	times := slices.Repeat(Seconds{1.23e-5}, 4096)
	line.StepS, line.ComputeS, line.InputS, line.CommS = times, times, times, times
	line.Hosts = slices.Repeat([]string{strings.Repeat("n", 63)}, len(times))
	_, err = d.AppendStepTimes(line, 0)
	must(t, err)
	if got, err := d.StepTimes(1); err != nil || len(got) != 1 || !slices.Equal(got[0].Hosts, line.Hosts) {
		t.Errorf("it was not read: %d lines, %v", len(got), err)
	}
}

func TestStepTimesRefuseFilesOutsideTheRun(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	_, err := d.ClaimAttempt()
	must(t, err)
	target := d.Path() + "/elsewhere"
	must(t, os.Symlink(target, d.StepTimesPath()))
	if _, err := d.AppendStepTimes(stepLine(1, 1), 0); err == nil {
		t.Error("a link is followed")
	}
	must(t, os.Remove(d.StepTimesPath()))
	must(t, os.WriteFile(d.StepTimesPath(), nil, 0o600))
	must(t, os.Truncate(d.StepTimesPath(), 10<<30)) // 10 GB of zeros, which use no disk space
	if _, err := d.AppendStepTimes(stepLine(1, 1), 0); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(d.StepTimesPath()); err != nil || info.Size() != 10<<30 {
		t.Errorf("a full file has grown: %v, %v", info, err)
	}
	if got, err := d.StepTimes(1); err != nil || got != nil {
		t.Errorf("of zeros: %v, %v", got, err)
	}
	many := stepLine(1, 1)
	many.StepS = make(Seconds, maxStepLine)
	if _, err := d.AppendStepTimes(many, 0); err == nil {
		t.Error("a line that no reader takes was written")
	}
}

func FuzzStepTimes(f *testing.F) {
	line, err := json.Marshal(stepLine(1, 7))
	must(f, err)
	f.Add(line, 2)
	f.Add(bytes.Replace(line, []byte(`"n1"`), []byte(`"\u001b[31m"`), 1), 1)
	f.Add([]byte(`{"attempt":1,"window_s":1,"step_s":[1,2],"comm_s":[1]}`), 1)
	f.Add([]byte(`{"attempt":1,"window_s":1,"step_s":[-1],"stragglers":[{"rank":9}]}`), 1)
	f.Fuzz(func(t *testing.T, data []byte, most int) {
		got := parseStepTimes(data, most)
		if len(got) > max(0, most) {
			t.Fatalf("%d lines, not %d", len(got), most)
		}
		for _, s := range got {
			for _, list := range []Seconds{s.ComputeS, s.InputS, s.CommS} {
				if list != nil && len(list) != len(s.StepS) {
					t.Fatalf("slices of several lengths: %+v", s)
				}
			}
			if s.Hosts != nil && len(s.Hosts) != len(s.StepS) {
				t.Fatalf("not a host for each rank: %+v", s)
			}
			for _, one := range s.Stragglers {
				if one.Rank < -1 || one.Rank >= len(s.StepS) || strings.ContainsRune(fmt.Sprint(one), '\x1b') {
					t.Fatalf("%+v", one)
				}
			}
		}
	})
}
