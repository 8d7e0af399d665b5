package rundir

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"ddpbatch/internal/text"
	"ddpbatch/internal/vfs"
)

const (
	stepTimesName = "steps.jsonl"

	// maxStepLine is more than what 4096 ranks take: 4 numbers of 9 bytes each, and the name of a host, of up to 63.
	maxStepLine = 512 << 10
	// stepTimesPart is after how many bytes of steps.jsonl its windows get twice as long: a window of a minute and 512 ranks fill 24 MB in
	// two weeks.
	stepTimesPart = 4 << 20
	// maxStepTimes is where steps.jsonl ends for good.
	maxStepTimes = 40 << 20
	// firstStepWindow is the shortest window of a file with nothing in it.
	firstStepWindow = time.Second
	// stepWindow is the length of a window once an attempt has run for some minutes, in a short file.
	stepWindow = time.Minute
)

// Seconds are lengths of time by rank. 0 stands for one that is not known. In a file they have three significant digits.
type Seconds []float64

// MarshalJSON writes what is no length of time as 0.
func (s Seconds) MarshalJSON() ([]byte, error) {
	out := []byte{'['}
	for i, value := range s {
		if i > 0 {
			out = append(out, ',')
		}
		if !(value > 0 && value <= math.MaxFloat32) { // NaN, too
			value = 0
		}
		out = strconv.AppendFloat(out, value, 'g', 3, 64)
	}
	return append(out, ']'), nil
}

// StepTimes is a line of steps.jsonl, which agent 0 appends: how long the steps of each rank took on average, in one window of time. Slices
// are indexed by rank and have one length; those of the parts may be nil, where no rank says how its steps divide.
type StepTimes struct {
	Time    time.Time `json:"time"` // when the window ended, by agent 0's clock
	Attempt int       `json:"attempt"`
	Step    int64     `json:"step"`            // the highest step that a rank had finished by then
	WindowS float64   `json:"window_s"`        // how long the window was
	Hosts   []string  `json:"hosts,omitempty"` // by rank; in the file only in the first line, and where they change
	// from one step's end to the next one's, evaluations and saves between them included
	StepS      Seconds     `json:"step_s"`
	ComputeS   Seconds     `json:"compute_s,omitempty"` // of that: forward, backward and the optimizer
	InputS     Seconds     `json:"input_s,omitempty"`   // waiting for the loader
	CommS      Seconds     `json:"comm_s,omitempty"`    // waiting for other ranks, with nothing else going on
	Stragglers []Straggler `json:"stragglers,omitempty"`
}

// Straggler is a rank, or a whole node, that has been clearly slower than the median of the ranks in the last windows.
type Straggler struct {
	Rank  int     `json:"rank"` // -1: all ranks of the host
	Host  string  `json:"host"`
	Times float64 `json:"times"`          // how long its steps take, without its waiting for others where that is known, by the median's
	Part  string  `json:"part,omitempty"` // PartCompute, PartInput or PartComm; "": not known
}

// The parts of a step.
const (
	PartCompute = "compute"
	PartInput   = "input"
	PartComm    = "communication"
)

func (s Straggler) String() string {
	who := "all ranks on " + s.Host
	takes := "take"
	if s.Rank >= 0 {
		who, takes = fmt.Sprintf("rank %d on %s", s.Rank, s.Host), "takes"
	}
	line := fmt.Sprintf("%s %s %.1f times as long for a step as the median of the ranks", who, takes, s.Times)
	if s.Part != "" {
		line += " (" + s.Part + ")"
	}
	return line
}

// IsFresh reports whether, of a job that runs, s is what its ranks are like at now: the line after it is not overdue. There is none where
// no rank finishes a step any longer, or the file is full.
func (s *StepTimes) IsFresh(now time.Time) bool {
	const windows, atLeast = 2, 60 // seconds, which a file server's client may take to show what another node has written
	return now.Sub(s.Time).Seconds() <= max(windows*s.WindowS, atLeast)
}

// StepTimesPath is where agent 0 appends the ranks' step times, a JSON object a line.
func (d *Dir) StepTimesPath() string { return filepath.Join(d.path, stepTimesName) }

// AppendStepTimes adds a line to steps.jsonl, for an attempt that has not been superseded ([ErrSuperseded]). It returns how long the next
// window must be at the least: it grows with the age of the attempt, so that a short one has many windows, too, and with the size of the
// file, which so stays small. A file of 40 MB gets no more lines, which is no error.
func (d *Dir) AppendStepTimes(s StepTimes, age time.Duration) (window time.Duration, err error) {
	size, err := d.appendStepTimes(s)
	if err != nil {
		return 0, fmt.Errorf("add to the run's step times: %w", err)
	}
	return stepWindowAfter(size, age), nil
}

// stepWindowAfter is how long a window is in a file of that size, in an attempt of that age.
func stepWindowAfter(size int64, age time.Duration) time.Duration {
	const share = 5 // of the age: some twenty lines before windows have their full length
	return max(firstStepWindow, min(age/share, stepWindow)) << min(max(0, size)/stepTimesPart, maxStepTimes/stepTimesPart)
}

func (d *Dir) appendStepTimes(s StepTimes) (size int64, err error) {
	line, err := json.Marshal(s)
	if err != nil {
		return 0, err
	}
	if len(line) >= maxStepLine {
		return 0, fmt.Errorf("a line of %d ranks has %d bytes, more than %d", len(s.StepS), len(line), maxStepLine)
	}
	if err := d.Fence(s.Attempt); err != nil {
		return 0, err
	}
	f, err := os.OpenFile(d.StepTimesPath(), os.O_RDWR|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() || vfs.Owner(info) != os.Geteuid() {
		return 0, fmt.Errorf("%s is not a file of this user", d.StepTimesPath())
	}
	if info.Size() > maxStepTimes-maxStepLine {
		return info.Size(), nil
	}
	cut, err := endsMidLine(f)
	if err != nil {
		return 0, err
	}
	if cut {
		line = append([]byte{'\n'}, line...)
	}
	n, err := f.Write(append(line, '\n'))
	return info.Size() + int64(n), err
}

// StepTimes reads the newest lines of steps.jsonl, most at the most, oldest first; none where there is no such file. Each has its Hosts,
// which lines share, so far as the lines that were read tell them. What is no whole line is left out.
func (d *Dir) StepTimes(most int) ([]StepTimes, error) {
	f, err := openFile(d.StepTimesPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var lines []StepTimes
	if err == nil {
		defer f.Close()
		lines, err = readStepTimes(f, most)
	}
	if err != nil {
		return nil, fmt.Errorf("read the run's step times: %w", err)
	}
	return lines, nil
}

// readStepTimes reads no more of the file's end than the lines can take that are wanted.
func readStepTimes(f io.ReadSeeker, most int) ([]StepTimes, error) {
	end := int64(maxStepTimes)
	if most < maxStepTimes/maxStepLine {
		end = int64(max(0, most)+1) * maxStepLine
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = f.Seek(max(0, size-end), io.SeekStart)
	}
	var data []byte
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(f, end))
	}
	return parseStepTimes(data, most), err
}

func parseStepTimes(data []byte, most int) (lines []StepTimes) {
	for len(data) > 0 && len(lines) < most {
		data = bytes.TrimSuffix(data, []byte{'\n'})
		start := bytes.LastIndexByte(data, '\n') + 1
		var s StepTimes
		if line := data[start:]; len(line) < maxStepLine && json.Unmarshal(line, &s) == nil && s.check() {
			lines = append(lines, s)
		}
		data = data[:start]
	}
	slices.Reverse(lines)
	fillHosts(lines, data)
	return lines
}

// fillHosts gives each line the hosts of the one before it where it has none of its own; the first one those that the lines before tell.
func fillHosts(lines []StepTimes, before []byte) {
	if len(lines) == 0 {
		return
	}
	hosts := lines[0].Hosts
	if hosts == nil {
		hosts = lastHosts(before, lines[0].Attempt)
	}
	for i := range lines {
		if i > 0 && lines[i].Attempt != lines[i-1].Attempt {
			hosts = nil
		}
		if lines[i].Hosts != nil {
			hosts = lines[i].Hosts
		}
		if len(hosts) == len(lines[i].StepS) {
			lines[i].Hosts = hosts
		}
	}
}

// lastHosts are the newest hosts of an attempt that lines tell; nil: they tell none.
func lastHosts(data []byte, attempt int) []string {
	for len(data) > 0 {
		data = bytes.TrimSuffix(data, []byte{'\n'})
		start := bytes.LastIndexByte(data, '\n') + 1
		var s StepTimes
		if line := data[start:]; bytes.Contains(line, []byte(`"hosts"`)) && json.Unmarshal(line, &s) == nil && s.check() {
			if s.Attempt == attempt {
				return s.Hosts
			}
			return nil
		}
		data = data[:start]
	}
	return nil
}

// check reports whether s can be a line of steps.jsonl. It cleans the names in it.
func (s *StepTimes) check() bool {
	if s.Attempt < 1 || s.Step < 0 || !(s.WindowS > 0) || len(s.StepS) == 0 {
		return false
	}
	for _, list := range []Seconds{s.StepS, s.ComputeS, s.InputS, s.CommS} {
		if list != nil && len(list) != len(s.StepS) || slices.ContainsFunc(list, func(x float64) bool { return x < 0 }) {
			return false
		}
	}
	if s.Hosts != nil && len(s.Hosts) != len(s.StepS) {
		return false
	}
	for i := range s.Hosts {
		s.Hosts[i] = text.Clean(s.Hosts[i])
	}
	for i := range s.Stragglers {
		one := &s.Stragglers[i]
		if one.Rank < -1 || one.Rank >= len(s.StepS) || one.Times < 0 || one.Times > math.MaxInt32 {
			return false
		}
		one.Host, one.Part = text.Clean(one.Host), text.Clean(one.Part)
	}
	return true
}
