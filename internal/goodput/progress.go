package goodput

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"ddpbatch/internal/rundir"
)

const (
	maxMetrics  = 1 << 30   // bytes read of metrics.jsonl, at its end: they take a second or two, and have some millions of steps
	maxLine     = 64 << 10  // bytes; a line has some 300
	maxTrained  = 100_000   // attempts with metrics
	maxMarks    = 256       // marks of an attempt; between two of them steps are assumed to take equally long
	manyTrained = 256       // after this number of attempts, each further one has at most
	fewMarks    = 16        // marks
	maxStall    = 1_000_000 // seconds of a save, far less than a time.Duration can represent
)

// progress is what metrics.jsonl says about a run's attempts.
type progress struct {
	offset   int64 // how far the file was read
	cut      bool  // the file's beginning was skipped
	attempts map[int]*training
	spacing  int64 // the largest number of steps between the first two lines of an attempt

	current *training
	last    []byte // the newest line of current, if it was not parsed
}

// training is what an attempt's lines say.
type training struct {
	marks    []mark
	stride   int // the number of lines for each mark
	unmarked int // lines since the newest mark
	stall    time.Duration
	resumed  *int64        // the step after which it went on; nil: the lines do not say
	prepared time.Duration // how long it took to find and to load the checkpoint
}

// mark says how far an attempt was at some time.
type mark struct {
	step  int64
	at    time.Time
	stall time.Duration // of all saves until then
}

// line holds the used fields of a line of metrics.jsonl.
type line struct {
	Time    time.Time `json:"time"`
	Step    int64     `json:"step"`
	StallS  float64   `json:"save_stall_s"`
	Resumed *int64    `json:"resume_step"`
	FindS   float64   `json:"resume_find_s"`
	LoadS   float64   `json:"resume_load_s"`
}

// read reads the lines that were appended to f since the last call.
func (p *progress) read(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	switch size := info.Size(); {
	case size < p.offset: // it is another file
		*p = progress{}
	case size-p.offset > maxMetrics:
		p.offset, p.cut = size-maxMetrics, true
	}
	if p.attempts == nil {
		p.attempts = map[int]*training{}
	}
	return p.lines(io.NewSectionReader(f, p.offset, math.MaxInt64-p.offset))
}

// lines reads the lines of r. It leaves a last line without an end for the next call.
func (p *progress) lines(r io.Reader) error {
	buffered := bufio.NewReaderSize(r, maxLine)
	for tooLong := false; ; {
		data, err := buffered.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			p.offset += int64(len(data))
			tooLong = true
			continue
		case err == io.EOF:
			p.flush()
			return nil
		case err != nil:
			return err
		case !tooLong:
			p.add(data)
		}
		p.offset += int64(len(data))
		tooLong = false
	}
}

// add handles a line. It parses only some of an attempt's lines: the first, one in stride, the last, and those about a save or a resume.
func (p *progress) add(data []byte) {
	attempt, ok := intAfter(data, `"attempt":`)
	if !ok {
		return
	}
	t := p.attempts[attempt]
	if t == nil {
		if len(p.attempts) >= maxTrained {
			return
		}
		t = &training{stride: 1}
		p.attempts[attempt] = t
	}
	if p.current != t {
		p.flush()
		p.current = t
	}
	t.unmarked++
	if t.unmarked < t.stride && !bytes.Contains(data, []byte(`"save_stall_s"`)) && !bytes.Contains(data, []byte(`"resume_`)) {
		p.last = append(p.last[:0], data...)
		return
	}
	p.last = p.last[:0]
	p.take(data)
}

// flush parses the newest line, so far the last one of its attempt.
func (p *progress) flush() {
	if len(p.last) > 0 {
		p.take(p.last)
		p.last = p.last[:0]
	}
}

func (p *progress) take(data []byte) {
	var l line
	t := p.current
	if rundir.UnmarshalMetrics(data, &l) != nil || l.Step < 0 || l.Time.IsZero() {
		return
	}
	if l.Resumed != nil && *l.Resumed >= 0 {
		t.resumed = l.Resumed
	}
	t.prepared += seconds(l.FindS) + seconds(l.LoadS)
	t.stall += seconds(l.StallS)
	t.unmarked = 0
	if n := len(t.marks); n > 0 {
		before := t.marks[n-1]
		if l.Step < before.step || l.Time.Before(before.at) { // the clock was set back, or another program writes, too
			return
		}
		if n == 1 {
			p.spacing = max(p.spacing, l.Step-before.step)
		}
	}
	t.marks = append(t.marks, mark{l.Step, l.Time, t.stall})
	most := maxMarks
	if len(p.attempts) > manyTrained {
		most = fewMarks
	}
	if len(t.marks) > most {
		t.thin()
	}
}

// thin removes every other mark, except the first two, which say how fast the first steps were, and the newest.
func (t *training) thin() {
	kept := t.marks[:2]
	for i := 2; i < len(t.marks); i++ {
		if i%2 == 0 || i == len(t.marks)-1 {
			kept = append(kept, t.marks[i])
		}
	}
	t.marks = slices.Clip(kept)
	t.stride *= 2
}

func seconds(s float64) time.Duration {
	if !(s > 0 && s < maxStall) {
		return 0
	}
	return time.Duration(s * float64(time.Second))
}

// intAfter returns the number after a key of a line, as Go and Python write it.
func intAfter(data []byte, key string) (n int, ok bool) {
	i := bytes.Index(data, []byte(key))
	if i < 0 {
		return 0, false
	}
	data = bytes.TrimLeft(data[i+len(key):], " ")
	digits := 0
	for digits < len(data) && digits < 9 && '0' <= data[digits] && data[digits] <= '9' {
		n = 10*n + int(data[digits]-'0')
		digits++
	}
	return n, digits > 0
}

const noMetrics = "the run wrote no metrics"

// lack says why the metrics do not show what an attempt did.
func (p *progress) lack() string {
	switch {
	case p.cut:
		return "the beginning of metrics.jsonl was not read"
	case p.offset > 0:
		return "no line of metrics.jsonl has both attempt and time (RFC 3339)"
	}
	return noMetrics
}

// lastStep returns the last step of the attempt.
func (t *training) lastStep() int64 { return t.marks[len(t.marks)-1].step }

// firstStep returns the step after which the attempt went on. If the metrics do not say, it is assumed to be as far before the first line
// as lines are apart.
func (p *progress) firstStep(t *training) int64 {
	first := t.marks[0].step
	if t.resumed != nil {
		return min(*t.resumed, first)
	}
	spacing := max(p.spacing, 1)
	for _, m := range t.marks[1:] {
		if m.step > first {
			spacing = m.step - first
			break
		}
	}
	return max(0, first-spacing)
}

// began returns when the attempt's first step began. It assumes that the steps before the first line took as long as those after it.
func (p *progress) began(t *training) time.Time {
	first := t.marks[0]
	for _, m := range t.marks[1:] {
		if m.step > first.step {
			took := m.at.Sub(first.at) - (m.stall - first.stall)
			rate := took.Seconds() / float64(m.step-first.step)
			return first.at.Add(-first.stall - seconds(rate*float64(first.step-p.firstStep(t))))
		}
	}
	return first.at
}

// reached returns when the attempt had done the given step, and how long training had been interrupted for saves by then.
func (p *progress) reached(t *training, step int64) (time.Time, time.Duration) {
	before := mark{step: p.firstStep(t), at: p.began(t)}
	for _, m := range t.marks {
		if m.step <= step {
			before = m
			continue
		}
		if step <= before.step {
			break
		}
		share := float64(step-before.step) / float64(m.step-before.step)
		part := func(d time.Duration) time.Duration { return time.Duration(share * float64(d)) }
		return before.at.Add(part(m.at.Sub(before.at))), before.stall + part(m.stall-before.stall)
	}
	return before.at, before.stall
}

// stallBefore returns how long training had been interrupted for saves by a time.
func (t *training) stallBefore(at time.Time) (stall time.Duration) {
	for _, m := range t.marks {
		if m.at.After(at) {
			break
		}
		stall = m.stall
	}
	return stall
}

// keep says which steps of an attempt were kept: those up to step. The attempt by did later ones again; 0: none were done again.
type keep struct {
	step int64
	by   int
}

// kept returns the keep of each attempt that has lines.
func (p *progress) kept() map[int]keep {
	all := make(map[int]keep, len(p.attempts))
	earliest := keep{step: math.MaxInt64} // the earliest step after which a later attempt went on
	for _, attempt := range slices.Backward(slices.Sorted(maps.Keys(p.attempts))) {
		t := p.attempts[attempt]
		if len(t.marks) == 0 {
			continue
		}
		all[attempt] = keep{step: t.lastStep()}
		if earliest.step < t.lastStep() {
			all[attempt] = earliest
		}
		if first := p.firstStep(t); first <= earliest.step {
			earliest = keep{step: first, by: attempt}
		}
	}
	return all
}
