package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// metricsTail is how much of the end of metrics.jsonl is read first. A line has about 200 bytes.
	metricsTail = 64 << 10
	// longTail is how much is read if metricsTail has no complete line with a step.
	longTail = 1 << 20
)

// Metrics is a line of metrics.jsonl. The built-in trainer's rank 0 appends such lines, or the user's program, whose lines need only a
// step.
type Metrics struct {
	Time          time.Time `json:"time"`    // if a line has none: when the file was last changed
	Attempt       int       `json:"attempt"` // if a line has none: the attempt that had begun last then; 0: not known
	Step          int64     `json:"step"`    // finished steps in all attempts
	Steps         int64     `json:"steps"`   // planned steps; 0: not known
	Epoch         *int      `json:"epoch"`   // nil: not known
	Loss          *float64  `json:"loss"`    // mean over the last steps, as in the newest line that gives one; nil: not known or not finite
	LR            float64   `json:"lr"`
	SamplesPerSec float64   `json:"samples_per_s"` // of all ranks together; 0: not known, as for the next fields
	CommShare     float64   `json:"comm_share"`    // share of the time for communication alone, 0 to 1
	Overlap       float64   `json:"overlap"`       // share of the communication while gradients were computed, 0 to 1
	LeftS         float64   `json:"left_s"`        // seconds that the remaining steps take
}

// OpenMetrics opens metrics.jsonl for appending. It first ends a line that a killed attempt or a full disk has cut short.
func (d *Dir) OpenMetrics() (io.WriteCloser, error) {
	f, err := os.OpenFile(d.MetricsPath(), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the metrics file: %w", err)
	}
	if cut, err := endsMidLine(f); err == nil && cut {
		_, _ = f.Write([]byte{'\n'}) // if this fails, so will writing the metrics, which reports it
	}
	return f, nil
}

// ReadMetrics opens metrics.jsonl for reading from the beginning. The error is fs.ErrNotExist if no metrics have been written.
func (d *Dir) ReadMetrics() (*os.File, error) {
	f, err := openFile(d.MetricsPath())
	if err != nil {
		return nil, fmt.Errorf("read the run's metrics: %w", err)
	}
	return f, nil
}

// LastMetrics reads the newest complete line of metrics.jsonl that has a step. It reads only the end of the file. It reports whether there
// is such a line. If the line does not give a loss, as after a resume that takes no step, Loss is that of the newest line before it that
// does.
func (d *Dir) LastMetrics() (Metrics, bool, error) {
	for _, most := range []int64{metricsTail, longTail} {
		tail, changed, err := d.metricsEnd(most)
		if err != nil {
			return Metrics{}, false, err
		}
		if m, ok := lastMetrics(tail); ok {
			if m.Loss == nil {
				m.Loss = d.lastLoss(tail)
			}
			return d.complete(m, changed), true, nil
		}
		if int64(len(tail)) < most {
			break // that was the whole file
		}
	}
	return Metrics{}, false, nil
}

// complete adds what a program's newest line lacks, according to the time when it was written.
func (d *Dir) complete(m Metrics, written time.Time) Metrics {
	if m.Time.IsZero() {
		m.Time = written
	}
	if m.Attempt == 0 {
		m.Attempt = d.attemptAt(written)
	}
	return m
}

// attemptAt returns the attempt that had begun last at a time of the file server's clock, or 0 if that is not known.
func (d *Dir) attemptAt(at time.Time) int {
	const far = 100 // attempts without output since
	newest, err := d.NewestAttempt()
	for n := newest; err == nil && n > max(0, newest-far); n-- {
		if began, known := d.claimedAt(n); known && !at.Before(began) {
			return n
		}
	}
	return 0
}

// claimedAt returns when an attempt was claimed, by the file server's clock: the directory that its claimant made never changes.
func (d *Dir) claimedAt(n int) (at time.Time, known bool) {
	entries, _ := os.ReadDir(d.attemptPath(n)) // no entries: not known
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), claimPrefix) {
			return info.ModTime(), true
		}
	}
	return time.Time{}, false
}

// metricsEnd reads at most most bytes of the end of metrics.jsonl, and when that was last changed. It returns nothing if the file does not
// exist.
func (d *Dir) metricsEnd(most int64) (tail []byte, changed time.Time, err error) {
	f, err := d.ReadMetrics()
	if errors.Is(err, os.ErrNotExist) {
		return nil, changed, nil
	}
	if err != nil {
		return nil, changed, fmt.Errorf("read the run's metrics: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil {
		changed = info.ModTime()
		tail, err = io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-most), most))
	}
	if err != nil {
		return nil, changed, fmt.Errorf("read the run's metrics: %w", err)
	}
	return tail, changed, nil
}

// maxMetrics is how much of the end of metrics.jsonl is read for a metric's values in the course of a run.
const maxMetrics = 16 << 20

// MetricValues returns the numbers that metrics.jsonl has under a name, oldest first, without those from before the run last started
// without a checkpoint.
func (d *Dir) MetricValues(name string) (values []float64, err error) {
	data, _, err := d.metricsEnd(maxMetrics)
	for line := range bytes.Lines(data) {
		if value, ok := d.metricIn(line, name); ok {
			values = append(values, value)
		}
	}
	return values, err
}

// LastMetric returns the newest of MetricValues, if the end of the file has one.
func (d *Dir) LastMetric(name string) (value float64, ok bool, err error) {
	data, _, err := d.metricsEnd(metricsTail)
	for len(data) > 0 && !ok {
		data = bytes.TrimSuffix(data, []byte{'\n'})
		start := bytes.LastIndexByte(data, '\n') + 1
		value, ok = d.metricIn(data[start:], name)
		data = data[:start]
	}
	return value, ok, err
}

// metricIn returns the number of that name in a line of metrics.jsonl, unless the run has started without a checkpoint since.
func (d *Dir) metricIn(line []byte, name string) (value float64, ok bool) {
	if quoted, err := json.Marshal(name); err != nil || !bytes.Contains(line, quoted) {
		return 0, false
	}
	all := parseMetrics(line)
	if attempt, known := all["attempt"].(float64); known && attempt < float64(d.AnewFrom()) {
		return 0, false
	}
	value, ok = all[name].(float64)
	return value, ok
}

// MetricNames returns the names of the numbers in the newest lines of metrics.jsonl, in no particular order.
func (d *Dir) MetricNames() ([]string, error) {
	data, _, err := d.metricsEnd(metricsTail)
	numbers := map[string]bool{}
	for line := range bytes.Lines(data) {
		for name, value := range parseMetrics(line) {
			if _, isNumber := value.(float64); isNumber {
				numbers[name] = true
			}
		}
	}
	return slices.Collect(maps.Keys(numbers)), err
}

// StepOf returns the last step that an attempt has written, or 0 if it has written none. It is no longer known once a later attempt has
// written a step.
func (d *Dir) StepOf(attempt int) (int64, error) {
	last, ok, err := d.LastMetrics()
	if err != nil || !ok || last.Attempt != attempt {
		return 0, err
	}
	return last.Step, nil
}

// lastMetrics finds the last complete line of data that has a step. A line that is cut at either end is not a JSON object.
func lastMetrics(data []byte) (Metrics, bool) {
	for len(data) > 0 {
		data = bytes.TrimSuffix(data, []byte{'\n'})
		start := bytes.LastIndexByte(data, '\n') + 1
		if m, ok := metricsOf(parseMetrics(data[start:])); ok {
			return m, true
		}
		data = data[:start]
	}
	return Metrics{}, false
}

// lastLoss returns the loss of the newest line in tail that has a step and gives a loss. It returns nil if that loss is not finite, or from
// before the run last started without a checkpoint.
func (d *Dir) lastLoss(tail []byte) *float64 {
	for len(tail) > 0 {
		tail = bytes.TrimSuffix(tail, []byte{'\n'})
		start := bytes.LastIndexByte(tail, '\n') + 1
		if line := tail[start:]; bytes.Contains(line, []byte(`"loss"`)) {
			all := parseMetrics(line)
			m, ok := metricsOf(all)
			if _, given := all["loss"]; ok && given {
				if m.Attempt > 0 && m.Attempt < d.AnewFrom() {
					return nil
				}
				return m.Loss
			}
		}
		tail = tail[:start]
	}
	return nil
}

// parseMetrics parses a line. It returns nil if that is not a JSON object. Python's json.dumps also writes NaN, Infinity and -Infinity,
// which are not JSON: they become null.
func parseMetrics(line []byte) (all map[string]any) {
	if line = bytes.TrimSpace(line); len(line) == 0 || line[0] != '{' {
		return nil
	}
	if UnmarshalMetrics(line, &all) != nil {
		return nil
	}
	return all
}

// UnmarshalMetrics is json.Unmarshal for a line that may have Python's NaN, Infinity and -Infinity, which become null.
func UnmarshalMetrics(line []byte, to any) error {
	if bytes.Contains(line, []byte("NaN")) || bytes.Contains(line, []byte("Infinity")) {
		line = withoutNonFinite(line)
	}
	return json.Unmarshal(line, to)
}

// withoutNonFinite replaces NaN, Infinity and -Infinity by null, except within strings.
func withoutNonFinite(line []byte) []byte {
	out := make([]byte, 0, len(line)+8)
	inText := false
next:
	for len(line) > 0 {
		switch {
		case inText && line[0] == '\\' && len(line) > 1:
			out = append(out, line[0])
			line = line[1:]
		case line[0] == '"':
			inText = !inText
		case !inText:
			for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
				if bytes.HasPrefix(line, []byte(word)) {
					out, line = append(out, "null"...), line[len(word):]
					continue next
				}
			}
		}
		out, line = append(out, line[0]), line[1:]
	}
	return out
}

// metricsOf takes the valid members of a line. ok is false if it has no step.
func metricsOf(all map[string]any) (m Metrics, ok bool) {
	number := func(name string) float64 {
		value, _ := all[name].(float64)
		return value
	}
	whole := func(name string) int64 { // 0 for invalid numbers
		if value := number(name); value > 0 && value < 1<<53 {
			return int64(value)
		}
		return 0
	}
	step, ok := all["step"].(float64)
	if !ok || step < 0 || step >= 1<<53 {
		return Metrics{}, false
	}
	m = Metrics{
		Step: int64(step), Steps: whole("steps"), LR: number("lr"), SamplesPerSec: number("samples_per_s"),
		CommShare: number("comm_share"), Overlap: number("overlap"), LeftS: number("left_s"),
	}
	if attempt := whole("attempt"); attempt <= maxAttempt {
		m.Attempt = int(attempt)
	}
	if _, given := all["epoch"].(float64); given {
		m.Epoch = new(int(whole("epoch")))
	}
	if loss, given := all["loss"].(float64); given {
		m.Loss = &loss
	}
	if text, given := all["time"].(string); given {
		m.Time, _ = time.Parse(time.RFC3339, text) // the zero time if there is none
	}
	return m, true
}

// LastSign returns when an attempt last left a trace: a line of metrics, or a change of one of its files, including its ranks' logs. It
// returns the zero time if there is none.
// left none.
func (d *Dir) LastSign(attempt int) (time.Time, error) {
	var last time.Time
	m, ok, err := d.LastMetrics()
	if ok && m.Attempt == attempt {
		last = m.Time
	}
	walkErr := filepath.WalkDir(d.attemptPath(attempt), func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
		return err
	})
	if walkErr != nil {
		walkErr = fmt.Errorf("look for the last sign of attempt %d: %w", attempt, walkErr)
	}
	return last, errors.Join(err, walkErr)
}
