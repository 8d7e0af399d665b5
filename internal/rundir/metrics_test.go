package rundir

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestLastSignIsOfItsAttempt(t *testing.T) {
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
	writeStep := func(attempt int, at time.Time) {
		text, err := at.MarshalText()
		must(t, err)
		must(t, os.WriteFile(d.MetricsPath(), fmt.Appendf(nil, `{"time":%q,"attempt":%d,"step":7}`, text, attempt), 0o600))
	}
	for _, test := range []struct {
		name string
		do   func()
		want [2]time.Time // for each attempt
		step [2]int64
	}{
		{"nothing", func() {}, [2]time.Time{}, [2]int64{}},
		{"output", func() { touch(1, noon) }, [2]time.Time{noon, {}}, [2]int64{}},
		{"a step, later", func() { writeStep(1, noon.Add(time.Hour)) }, [2]time.Time{noon.Add(time.Hour), {}}, [2]int64{7, 0}},
		{"output of the next", func() { touch(2, noon.Add(3*time.Hour)) }, [2]time.Time{noon.Add(time.Hour), noon.Add(3 * time.Hour)},
			[2]int64{7, 0}},
		{"a step of the next, earlier", func() { writeStep(2, noon.Add(2*time.Hour)) }, [2]time.Time{noon, noon.Add(3 * time.Hour)},
			[2]int64{0, 7}},
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

// A line that was cut short stays on its own line.
func TestOpenMetricsEndsACutLine(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	for _, line := range []string{"{\"step\":1}\n", "{\"st", "{\"step\":2}\n"} {
		f, err := d.OpenMetrics()
		must(t, err)
		_, err = f.Write([]byte(line))
		must(t, errors.Join(err, f.Close()))
	}
	text, err := os.ReadFile(d.MetricsPath())
	if want := "{\"step\":1}\n{\"st\n{\"step\":2}\n"; err != nil || string(text) != want {
		t.Errorf("%q, %v; want %q", text, err, want)
	}
}

func TestLastMetricsPassesOverCutLines(t *testing.T) {
	line := func(step int) string {
		return fmt.Sprintf(`{"time":"2026-11-21T12:00:00Z","attempt":2,"step":%d,"steps":200,`+
			`"epoch":1,"loss":0.25,"lr":0.1,"samples_per_s":1e3,"comm_share":0.125}`, step)
	}
	long := strings.Repeat(line(1)+"\n", 1000) // more than is read
	for name, tc := range map[string]struct {
		text string
		want int64 // 0: no metrics
	}{
		"no file":             {"", 0},
		"one":                 {line(7) + "\n", 7},
		"two":                 {line(7) + "\n" + line(8) + "\n", 8},
		"last line cut":       {line(7) + "\n" + line(8)[:40], 7},
		"without a line end":  {line(7) + "\n" + line(8), 8},
		"only a cut line":     {line(7)[:40], 0},
		"blank lines":         {line(7) + "\n\n\n", 7},
		"zeros after a crash": {line(7) + "\n" + strings.Repeat("\x00", 4096), 7},
		"longer than is read": {long + line(9) + "\n", 9},
		"not an object":       {"null\n7\n\"x\"\n", 0},
		"no step":             {line(7) + "\n{\"eval_loss\":1}\n{\"step\":\"8\"}\n{\"step\":-1}\n{\"step\":1e300}\n", 7},
		"a long line":         {line(7) + "\n{\"x\":\"" + strings.Repeat("x", metricsTail) + "\"}\n", 7},
		"a longer line":       {line(7) + "\n" + strings.Repeat("x", longTail) + "\n", 0},
	} {
		t.Run(name, func(t *testing.T) {
			d := create1(t, t.TempDir(), "x")
			if name != "no file" {
				must(t, os.WriteFile(d.MetricsPath(), []byte(tc.text), 0o600))
			}
			m, ok, err := d.LastMetrics()
			if err != nil || ok != (tc.want > 0) || m.Step != tc.want {
				t.Fatalf("got %+v, %v, %v; want step %d", m, ok, err, tc.want)
			}
			loss := 0.25
			want := Metrics{Time: noon, Attempt: 2, Step: tc.want, Steps: 200, Epoch: new(1), Loss: &loss, LR: 0.1,
				SamplesPerSec: 1000, CommShare: 0.125}
			if ok && !reflect.DeepEqual(m, want) {
				t.Errorf("got %+v, want %+v", m, want)
			}
		})
	}
}

// The loss is that of the newest line that gives one, unless that is not finite, or from before the run began anew.
func TestLastMetricsKeepsTheLoss(t *testing.T) {
	const known = `{"attempt":1,"step":10,"loss":0.5}` + "\n"
	half := 0.5
	for name, tc := range map[string]struct {
		text string
		anew int
		want *float64
	}{
		"a resume without a step":    {known + `{"attempt":2,"step":10,"eval_loss":0.7}`, 0, &half},
		"none":                       {`{"step":9}` + "\n" + `{"step":10,"note":"loss"}`, 0, nil},
		"not finite":                 {known + `{"attempt":2,"step":10,"loss":NaN}`, 0, nil},
		"not finite, then no loss":   {known + `{"attempt":2,"step":9,"loss":NaN}` + "\n" + `{"attempt":2,"step":10}`, 0, nil},
		"of a line without a step":   {known + `{"loss":7}` + "\n" + `{"attempt":2,"step":10}`, 0, &half},
		"from before it began anew":  {known + `{"attempt":2,"step":10}`, 2, nil},
		"from after it began anew":   {known + `{"attempt":2,"step":10}`, 1, &half},
		"of a program, without more": {`{"step":9,"loss":0.5}` + "\n" + `{"step":10}`, 0, &half},
	} {
		d := create1(t, t.TempDir(), "x")
		spec := d.Spec()
		spec.Anew = tc.anew
		must(t, errors.Join(d.WriteSpec(spec), os.WriteFile(d.MetricsPath(), []byte(tc.text+"\n"), 0o600)))
		m, ok, err := d.LastMetrics()
		if err != nil || !ok || m.Step != 10 || !reflect.DeepEqual(m.Loss, tc.want) {
			t.Errorf("%s: %+v, %v, %v", name, m, ok, err)
		}
	}
}

// A program's line needs only a step, and may hold anything that Python's json.dumps writes.
func TestMetricsOfAProgram(t *testing.T) {
	loss := 0.5
	for line, want := range map[string]Metrics{
		`{"step": 10, "loss": 0.5}`:                               {Step: 10, Loss: &loss},
		`{"step": 10.0, "steps": 20, "loss": NaN}`:                {Step: 10, Steps: 20},
		`{"loss": -Infinity, "lr": Infinity, "step": 10}`:         {Step: 10},
		`{"step": 10, "loss": "NaN \"Infinity", "note": "NaN\\"}`: {Step: 10},
		`{"step": 10, "loss": [1, 2], "epoch": 1.75, "time": 7}`:  {Step: 10, Epoch: new(1)},
		` {"step":10,"time":"noon","steps":-1,"attempt":"x"}`:     {Step: 10},
	} {
		got, ok := lastMetrics([]byte(line + "\n"))
		if !ok || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", line, got, ok, want)
		}
	}
	for _, line := range []string{`{"step": NaN}`, `{"step": NaNs}`, `{"step": 1, "x": Infinit}`, `[NaN]`, `{"step": 10`, "\x00"} {
		if got, ok := lastMetrics([]byte(line)); ok {
			t.Errorf("%q: %+v", line, got)
		}
	}
}

// A line that does not give its attempt belongs to the attempt that began last before the line was written.
func TestStepsOfAProgramAreOfTheirAttempt(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	for n := 1; n <= 3; n++ {
		_, err := d.ClaimAttempt()
		must(t, err)
		claims, err := filepath.Glob(filepath.Join(d.attemptPath(n), claimPrefix+"*"))
		must(t, err)
		at := noon.Add(time.Duration(n) * time.Hour)
		must(t, os.Chtimes(claims[0], at, at))
	}
	for _, test := range []struct {
		line    string
		hours   float64 // time at which it was written
		attempt int
	}{
		{`{"step":7}`, 0.5, 0}, // as in a copy of the run
		{`{"step":7}`, 1, 1},
		{`{"step":7}`, 1.9, 1},
		{`{"step":7}`, 2.5, 2},
		{`{"step":7}`, 30, 3},
		{`{"step":7,"attempt":1}`, 30, 1},
	} {
		must(t, os.WriteFile(d.MetricsPath(), []byte(test.line), 0o600))
		at := noon.Add(time.Duration(test.hours * float64(time.Hour)))
		must(t, os.Chtimes(d.MetricsPath(), at, at))
		m, ok, err := d.LastMetrics()
		if err != nil || !ok || m.Attempt != test.attempt || !m.Time.Equal(at) {
			t.Errorf("%s of %v: %+v, %v, %v; want attempt %d", test.line, at, m, ok, err, test.attempt)
		}
		for n := range 4 {
			want := int64(0)
			if n == test.attempt {
				want = 7
			}
			if got, err := d.StepOf(n); err != nil || got != want {
				t.Errorf("%s of %v: attempt %d is at step %d, %v; want %d", test.line, at, n, got, err, want)
			}
		}
	}
}

func TestMetricsOfAHugeFile(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	must(t, os.WriteFile(d.MetricsPath(), nil, 0o600))
	must(t, os.Truncate(d.MetricsPath(), 10<<30)) // 10 GB of zeros, which use no disk space
	if m, ok, err := d.LastMetrics(); err != nil || ok {
		t.Errorf("of zeros: %+v, %v, %v", m, ok, err)
	}
	f, err := d.OpenMetrics()
	must(t, err)
	_, err = f.Write([]byte("{\"step\":9}\n"))
	must(t, errors.Join(err, f.Close()))
	if m, ok, err := d.LastMetrics(); err != nil || !ok || m.Step != 9 {
		t.Errorf("%+v, %v, %v; want step 9", m, ok, err)
	}
	if values, err := d.MetricValues("step"); err != nil || !slices.Equal(values, []float64{9}) {
		t.Errorf("%v, %v", values, err)
	}
}

func FuzzMetrics(f *testing.F) {
	f.Add([]byte(`{"step":1}` + "\n" + `{"step":`))
	f.Add([]byte("\n\n{\n"))
	f.Add([]byte(`{"step": 10.0, "loss": NaN, "lr": -Infinity, "x": "\"NaN\\"}` + "\n"))
	f.Add([]byte(`{"step":1e400,"epoch":-1,"attempt":1e12}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		before, ok := lastMetrics(data)
		if !ok && !reflect.DeepEqual(before, Metrics{}) || before.Step < 0 || before.Steps < 0 || before.Attempt < 0 ||
			before.Attempt > maxAttempt ||
			before.Epoch != nil && *before.Epoch < 0 || before.Loss != nil && (math.IsNaN(*before.Loss) || math.IsInf(*before.Loss, 0)) {
			t.Fatalf("%+v, %v", before, ok)
		}
		// A cut line changes nothing.
		if after, still := lastMetrics(append(bytes.Clone(data), "\n{\"step\":"...)); still != ok || !reflect.DeepEqual(after, before) {
			t.Fatalf("%+v, %v became %+v, %v", before, ok, after, still)
		}
	})
}

func TestMetricsAreFoundByTheirNames(t *testing.T) {
	d := create1(t, t.TempDir(), "x")
	if values, err := d.MetricValues("loss"); err != nil || values != nil {
		t.Errorf("%v, %v", values, err)
	}
	must(t, os.WriteFile(d.MetricsPath(), []byte(`{"attempt":1,"loss":9,"eval_loss":8}
{"attempt":2,"loss":0.5,"name":"loss","step":3}
not JSON: "loss"
{"loss":0.25,"eval_loss":null}
{"attempt":2,"eval_loss":0.75,"loss":"none"}
{"attempt":2,"loss":0.1`), 0o600))
	spec := d.Spec()
	spec.Anew = 2
	must(t, d.WriteSpec(spec))
	for name, want := range map[string][]float64{"loss": {0.5, 0.25}, "eval_loss": {0.75}, "step": {3}, "name": nil,
		"oss": nil, "\"": nil, "": nil} {
		values, err := d.MetricValues(name)
		last, ok, lastErr := d.LastMetric(name)
		if errors.Join(err, lastErr) != nil || !slices.Equal(values, want) || ok != (len(want) > 0) || ok && last != want[len(want)-1] {
			t.Errorf("%q: %v, the last %v (%v), %v; want %v", name, values, last, ok, errors.Join(err, lastErr), want)
		}
	}
	names, err := d.MetricNames()
	slices.Sort(names)
	if want := []string{"attempt", "eval_loss", "loss", "step"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("the names are %q, %v, want %q", names, err, want)
	}
}
