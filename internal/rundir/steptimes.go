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

	// maxStepLine is enough for 4096 ranks: 4 numbers of 9 bytes each, and the name of a host, of up to 63 bytes.
	maxStepLine = 512 << 10
	// stepTimesPart is the number of bytes of steps.jsonl after which the windows become twice as long. With windows of a minute, 512 ranks
	// fill 24 MB in two weeks.
	stepTimesPart = 4 << 20
	// maxStepTimes is the largest size of steps.jsonl.
	maxStepTimes = 40 << 20
	// firstStepWindow is the shortest window, used in an empty file.
	firstStepWindow = time.Second
	// stepWindow is the length of a window in a short file, once an attempt has run for some minutes.
	stepWindow = time.Minute
)

// Seconds are durations by rank; 0 means not known. In a file they have three significant digits.
type Seconds []float64

// MarshalJSON writes values that are not durations as 0.
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

// StepTimes is a line of steps.jsonl, which agent 0 appends: the average duration of each rank's steps in one window of time. Slices are
// indexed by rank and have the same length. Those of the parts are nil if no rank reports the parts of its steps.
type StepTimes struct {
	Time    time.Time `json:"time"` // end of the window, by agent 0's clock
	Attempt int       `json:"attempt"`
	Step    int64     `json:"step"`            // the highest step that a rank had finished by then
	WindowS float64   `json:"window_s"`        // length of the window
	Hosts   []string  `json:"hosts,omitempty"` // by rank; in the file only in the first line, and when they change
	// from the end of one step to the end of the next, including evaluations and saves between them
	StepS      Seconds     `json:"step_s"`
	ComputeS   Seconds     `json:"compute_s,omitempty"` // part of it: forward, backward and the optimizer
	InputS     Seconds     `json:"input_s,omitempty"`   // part of it: waiting for the loader
	CommS      Seconds     `json:"comm_s,omitempty"`    // part of it: waiting for other ranks, with nothing else going on
	Stragglers []Straggler `json:"stragglers,omitempty"`
}

// Straggler is a rank, or a whole node, that has been clearly slower than the median of the ranks in the last windows.
type Straggler struct {
	Rank  int     `json:"rank"` // -1: all ranks of the host
	Host  string  `json:"host"`
	Times float64 `json:"times"`          // duration of its steps relative to the median, without its waiting for others if that is known
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

// IsFresh reports whether s still describes the ranks of a running job: that is, whether the line after it is not overdue. That line does
// not come if no rank finishes a step any more, or the file is full.
func (s *StepTimes) IsFresh(now time.Time) bool {
	const windows, atLeast = 2, 60 // seconds; a file server's client may take so long to show what another node has written
	return now.Sub(s.Time).Seconds() <= max(windows*s.WindowS, atLeast)
}

// StepTimesPath returns the file to which agent 0 appends the ranks' step times, one JSON object per line.
func (d *Dir) StepTimesPath() string { return filepath.Join(d.path, stepTimesName) }

// AppendStepTimes adds a line to steps.jsonl, if the attempt has not been superseded ([ErrSuperseded]). It returns the least length of the
// next window. That grows with the age of the attempt, so that a short one has many windows too, and with the size of the file, which so
// stays small. A file of 40 MB gets no more lines; that is not an error.
func (d *Dir) AppendStepTimes(s StepTimes, age time.Duration) (window time.Duration, err error) {
	size, err := d.appendStepTimes(s)
	if err != nil {
		return 0, fmt.Errorf("add to the run's step times: %w", err)
	}
	return stepWindowAfter(size, age), nil
}

// stepWindowAfter returns the length of a window in a file of that size and an attempt of that age.
func stepWindowAfter(size int64, age time.Duration) time.Duration {
	const share = 5 // of the age: about twenty lines before windows have their full length
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

// StepTimes reads the newest lines of steps.jsonl, at most most of them, oldest first. It returns none if the file does not exist. Each
// line has its Hosts, as far as the lines that were read contain them; lines share these slices. Invalid lines are left out.
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

// readStepTimes reads only as much of the file's end as the wanted lines can take.
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

// fillHosts gives each line without hosts those of the line before it, and the first line those that the text before it contains.
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

// lastHosts returns the newest hosts of an attempt in some lines, or nil if they have none.
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

// check reports whether s is a valid line of steps.jsonl. It cleans the names in it.
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
