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
	"time"
)

// metricsTail is how much of the end of metrics.jsonl is read: a line has some
// 200 bytes.
const metricsTail = 64 << 10

// Metrics is a line of metrics.jsonl, which rank 0 of the built-in trainer
// appends.
type Metrics struct {
	Time          time.Time `json:"time"`
	Attempt       int       `json:"attempt"`
	Step          int64     `json:"step"`  // finished steps, over all attempts
	Steps         int64     `json:"steps"` // how many there will be; 0: not known
	Epoch         int       `json:"epoch"`
	Loss          *float64  `json:"loss"` // mean over the last steps; nil where the attempt has taken none yet
	LR            float64   `json:"lr"`
	SamplesPerSec float64   `json:"samples_per_s"` // of all ranks together
	CommShare     float64   `json:"comm_share"`    // of the time, with nothing else going on, 0 to 1
	Overlap       float64   `json:"overlap"`       // of the communication, while gradients were computed, 0 to 1
	LeftS         float64   `json:"left_s"`        // seconds that the steps to come take
}

// OpenMetrics opens metrics.jsonl to append to, and ends the line that an attempt that died, or a full disk, has cut short.
func (d *Dir) OpenMetrics() (io.WriteCloser, error) {
	f, err := os.OpenFile(d.MetricsPath(), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the metrics file: %w", err)
	}
	if cut, err := endsMidLine(f); err == nil && cut {
		_, _ = f.Write([]byte{'\n'}) // where it fails, so will the metrics, which say so
	}
	return f, nil
}

// ReadMetrics opens metrics.jsonl to read it from its beginning. An error that is fs.ErrNotExist means that nothing has written one.
func (d *Dir) ReadMetrics() (*os.File, error) {
	f, err := openFile(d.MetricsPath())
	if err != nil {
		return nil, fmt.Errorf("read the run's metrics: %w", err)
	}
	return f, nil
}

// LastMetrics reads the newest whole line of metrics.jsonl, and only the file's
// end for it. It tells whether there was one.
func (d *Dir) LastMetrics() (Metrics, bool, error) {
	tail, err := d.metricsEnd(metricsTail)
	if err != nil {
		return Metrics{}, false, err
	}
	m, ok := lastMetrics(tail)
	return m, ok, nil
}

// metricsEnd reads up to so many bytes of the end of metrics.jsonl; none where there is no such file.
func (d *Dir) metricsEnd(most int64) ([]byte, error) {
	f, err := d.ReadMetrics()
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	var tail []byte
	if err == nil {
		tail, err = io.ReadAll(io.NewSectionReader(f, max(0, size-most), most))
	}
	if err != nil {
		return nil, fmt.Errorf("read the run's metrics: %w", err)
	}
	return tail, nil
}

// maxMetrics is how much of the end of metrics.jsonl is read for what a metric was in the course of a run.
const maxMetrics = 16 << 20

// MetricValues are the numbers that metrics.jsonl has by a name, oldest first, less those of before the run began anew.
func (d *Dir) MetricValues(name string) (values []float64, err error) {
	data, err := d.metricsEnd(maxMetrics)
	for line := range bytes.Lines(data) {
		if value, ok := d.metricIn(line, name); ok {
			values = append(values, value)
		}
	}
	return values, err
}

// LastMetric is the newest of MetricValues, as far as the file's end has one.
func (d *Dir) LastMetric(name string) (value float64, ok bool, err error) {
	data, err := d.metricsEnd(metricsTail)
	for len(data) > 0 && !ok {
		data = bytes.TrimSuffix(data, []byte{'\n'})
		start := bytes.LastIndexByte(data, '\n') + 1
		value, ok = d.metricIn(data[start:], name)
		data = data[:start]
	}
	return value, ok, err
}

// metricIn is the number of that name in a line of metrics.jsonl, unless the run has begun anew since.
func (d *Dir) metricIn(line []byte, name string) (value float64, ok bool) {
	if quoted, err := json.Marshal(name); err != nil || !bytes.Contains(line, quoted) {
		return 0, false
	}
	var all map[string]any
	if json.Unmarshal(line, &all) != nil {
		return 0, false
	}
	if attempt, known := all["attempt"].(float64); known && attempt < float64(d.AnewFrom()) {
		return 0, false
	}
	value, ok = all[name].(float64)
	return value, ok
}

// MetricNames are the names of the numbers in the newest lines of metrics.jsonl, in no order.
func (d *Dir) MetricNames() ([]string, error) {
	data, err := d.metricsEnd(metricsTail)
	numbers := map[string]bool{}
	for line := range bytes.Lines(data) {
		var all map[string]any
		if json.Unmarshal(line, &all) != nil {
			continue
		}
		for name, value := range all {
			if _, isNumber := value.(float64); isNumber {
				numbers[name] = true
			}
		}
	}
	return slices.Collect(maps.Keys(numbers)), err
}

// StepOf is the last step that an attempt told of; 0 where it told of none. Once a later attempt has told of one it is
// not known any more.
func (d *Dir) StepOf(attempt int) (int64, error) {
	last, ok, err := d.LastMetrics()
	if err != nil || !ok || last.Attempt != attempt {
		return 0, err
	}
	return last.Step, nil
}

// lastMetrics finds the last line of data that is whole. A line that was cut at
// either end is no JSON object.
func lastMetrics(data []byte) (Metrics, bool) {
	for len(data) > 0 {
		data = bytes.TrimSuffix(data, []byte{'\n'})
		start := bytes.LastIndexByte(data, '\n') + 1
		var m Metrics
		if line := data[start:]; len(line) > 0 && line[0] == '{' && json.Unmarshal(line, &m) == nil {
			return m, true
		}
		data = data[:start]
	}
	return Metrics{}, false
}

// LastSign is when an attempt last left a trace: a line of metrics, or a change of a file of its own, its ranks' logs among them. Zero: it
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
