package rundir

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/backoff"
	"ddpbatch/internal/text"
	"ddpbatch/internal/vfs"
)

const (
	maxLedger = 4 << 20 // bytes, of thousands of attempts; each line takes memory and time to read
	maxDetail = 4 << 10 // bytes of an event's text
)

// Event is a line of ledger.jsonl.
type Event struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"` // one of the Event constants
	Attempt int       `json:"attempt,omitempty"`
	Job     string    `json:"job,omitempty"`   // of a begin, a too-late: the Slurm job; of a cancel: what is to end, maybe a whole array
	Start   int       `json:"start,omitempty"` // of a begin: how often Slurm had started the job again (SLURM_RESTART_COUNT)
	Cause   string    `json:"cause,omitempty"` // as in Verdict
	Node    string    `json:"node,omitempty"`  // of the rank that ended first
	Nodes   []string  `json:"nodes,omitempty"` // as in Verdict
	Drain   bool      `json:"drain,omitempty"` // of an end: as in Verdict
	Unfit   []string  `json:"unfit,omitempty"` // of an end: as in Verdict
	Step    int64     `json:"step,omitempty"`
	Saved   bool      `json:"saved,omitempty"` // of an end: as in Verdict, and the next eight
	Signal  int       `json:"signal,omitempty"`
	WarnedS float64   `json:"warned_s,omitempty"`
	LeadS   float64   `json:"lead_s,omitempty"`
	Error   string    `json:"error,omitempty"` // cut after 4 KiB
	Class   string    `json:"class,omitempty"`
	Advice  string    `json:"advice,omitempty"`
	Final   bool      `json:"final,omitempty"`
	Trace   string    `json:"trace,omitempty"`
	Element *int      `json:"element,omitempty"` // of an array's resume, and its submitting: the only element that it is of; nil: Spans
	Spans   [][2]int  `json:"spans,omitempty"`   // the elements that it is of, from each first to each last index; none: all
	Link    int       `json:"link,omitempty"`    // which link of a chain its job is, from 1; 0: it is none
	Links   int       `json:"links,omitempty"`   // how many the chain was to have
	Detail  string    `json:"detail,omitempty"`  // cut after 4 KiB
}

// maxIndices bounds what Indices returns, as a ledger may hold anything.
const maxIndices = 1 << 20

// Indices are the elements of an array that a submission is of; none: all.
func (e Event) Indices() (indices []int) {
	if e.Element != nil {
		return []int{*e.Element}
	}
	for _, span := range e.Spans {
		for index := span[0]; index <= span[1] && len(indices) < maxIndices; index++ {
			indices = append(indices, index)
		}
	}
	return indices
}

// SpansOf writes ascending indices as an event's Spans.
func SpansOf(indices []int) (spans [][2]int) {
	for _, index := range indices {
		if n := len(spans); n > 0 && spans[n-1][1]+1 == index {
			spans[n-1][1] = index
		} else {
			spans = append(spans, [2]int{index, index})
		}
	}
	return spans
}

// The events of a run.
const (
	EventSubmit  = "submit"  // Slurm has taken the run's first job
	EventResume  = "resume"  // a person started the run again
	EventBegin   = "begin"   // an attempt began
	EventEnd     = "end"     // an attempt ended; a second one for it, with a better known cause, replaces the first
	EventRestart = "restart" // the agents start the workers again within the job
	EventRequeue = "requeue" // the job is about to be requeued
	EventRefused = "refused" // Slurm did not do the requeue before this
	EventGiveUp  = "give-up" // nothing more happens by itself
	// other ranks or nodes than before are clearly slower than the rest, or none is any longer; the detail says which
	EventStraggler = "straggler"
	EventCancel    = "cancel" // a person asked Slurm to end the job

	EventLink    = "link"     // Slurm has taken a further job of the run's chain, or a further array of its sweep
	EventLinkEnd = "link-end" // the job of a link ends, and the next link goes on

	EventSubmitting = "submitting" // Slurm is about to be asked to take a job; the detail is the event that follows where it does
	EventNotTaken   = "not-taken"  // it did not
	EventTooLate    = "too-late"   // it took a job after another command had claimed the run; that job must not begin
)

// Append adds e to the ledger in one write, durably, in turn with other
// processes. A line that a crash cut short stays alone: the new one begins after it.
func (d *Dir) Append(e Event) error {
	return d.appendIf(e, func(*os.File) bool { return true })
}

// appendIf is Append, but only if wanted returns true. wanted may read the ledger; no other process adds to it meanwhile.
func (d *Dir) appendIf(e Event, wanted func(ledger *os.File) bool) error {
	if err := d.append(e, wanted); err != nil {
		return fmt.Errorf("add to the run's ledger: %w", err)
	}
	return nil
}

func (d *Dir) append(e Event, wanted func(ledger *os.File) bool) (err error) {
	e.Detail, e.Error, e.Advice = text.Cut(e.Detail, maxDetail), text.Cut(e.Error, maxDetail), text.Cut(e.Advice, maxDetail)
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	f, err := d.openLedger()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	waitForLock(f)
	if !wanted(f) {
		return nil
	}
	cut, err := endsMidLine(f)
	if err != nil {
		return err
	}
	if cut {
		line = append([]byte{'\n'}, line...)
	}
	if _, err := f.Write(append(line, '\n')); err != nil {
		return err
	}
	return f.Sync()
}

// openLedger opens the ledger to add to it. Root does so when it cancels the run of another user, who must not be able to have it write to
// anything else by a link, nor get a ledger that only root can write to.
func (d *Dir) openLedger() (*os.File, error) {
	path := filepath.Join(d.path, ledgerName)
	dir, err := os.Lstat(d.path)
	if err != nil {
		return nil, err
	}
	flags := os.O_APPEND | os.O_RDWR | syscall.O_NOFOLLOW | syscall.O_NONBLOCK // a pipe is not waited for
	if vfs.Owner(dir) == os.Geteuid() {
		flags |= os.O_CREATE
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && (!info.Mode().IsRegular() || vfs.Owner(info) != vfs.Owner(dir)) {
		err = fmt.Errorf("%s is not a file of the run's owner", path)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// endsMidLine reports whether the last line of f has no end.
func endsMidLine(f *os.File) (bool, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return false, err
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], size-1)
	return last[0] != '\n', err
}

// SubmittedJob returns the job that the run was submitted as, if e records a submission, or that of a further link. A resume event may
// also record that Slurm started the same job again; then ok is false.
func (e Event) SubmittedJob() (id string, ok bool) {
	if e.Event != EventSubmit && e.Event != EventResume && e.Event != EventLink {
		return "", false
	}
	return strings.CutPrefix(e.Detail, "job ")
}

// Event is the ledger's line of an attempt's end.
func (v Verdict) Event() Event {
	return Event{
		Time: v.Time, Event: EventEnd, Attempt: v.Attempt, Cause: v.Cause, Node: v.Host, Nodes: v.Nodes, Drain: v.Drain,
		Unfit: v.Unfit, Step: v.Step,
		Saved: v.Saved, Signal: v.Signal, WarnedS: v.WarnedS, LeadS: v.LeadS, Detail: v.Message,
		Error: v.Error, Class: v.Class, Advice: v.Advice, Final: v.Final, Trace: v.Trace,
	}
}

// Ledger reads every event, oldest first; none where there is no ledger yet. An array's element has the cancels of
// the array among its own. Lines that a crash cut short are left out.
func (d *Dir) Ledger() ([]Event, error) {
	events, err := d.ownLedger()
	if err != nil || d.root == nil {
		return events, err
	}
	array, err := d.root.ownLedger()
	if err != nil {
		return nil, err
	}
	return withCancels(events, array), nil
}

// withCancels puts the cancels of an array where they belong among an element's events, by time. Those stay in their order: the clocks of
// nodes differ.
func withCancels(events, array []Event) []Event {
	for _, cancel := range array {
		if cancel.Event != EventCancel {
			continue
		}
		at := slices.IndexFunc(events, func(e Event) bool { return e.Time.After(cancel.Time) })
		if at < 0 {
			at = len(events)
		}
		events = slices.Insert(events, at, cancel)
	}
	return events
}

func (d *Dir) ownLedger() ([]Event, error) {
	data, err := readFile(filepath.Join(d.path, ledgerName), maxLedger)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the run's ledger: %w", err)
	}
	return parseLedger(data), nil
}

func parseLedger(data []byte) []Event {
	var events []Event
	for line := range bytes.Lines(data) {
		var e Event
		if json.Unmarshal(line, &e) == nil && e.Event != "" {
			events = append(events, e)
		}
	}
	return events
}

const (
	lockLimit     = 3 * time.Second // many times what a line takes; only who stands still has the lock for longer
	firstLockWait = 10 * time.Millisecond
	lastLockWait  = 25 * time.Millisecond // on average half of that: a line takes less, and no waiter is to miss its turn for lockLimit
)

// waitForLock waits until nobody else writes to f, and keeps others waiting until it is closed. On NFS that holds between machines, and
// brings the file up to date (flock(2)). Where the file system has no locks, or another process does not let go, f is written to without:
// a line that may be lost is better than none.
func waitForLock(f *os.File) {
	limited, cancel := context.WithTimeout(context.Background(), lockLimit)
	defer cancel()
	for wait := (backoff.Backoff{First: firstLockWait, Most: lastLockWait}); ; {
		err := lock(f)
		if err != unix.EWOULDBLOCK && err != unix.EINTR || wait.Wait(limited) != nil {
			return
		}
	}
}

// lock takes f for who has opened it so.
func lock(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// Why simulate itself does not begin a job again: whoever runs simulate may. They are details of EventGiveUp, which status knows them by.
const (
	OwnDeadline   = "DDPBATCH_DEADLINE is that of simulate itself"
	KilledAtLimit = "the batch script was killed at the time limit, before it could ask for a requeue"
)

// Details of a requeue, and of a link's end behind its job and before the reason, that are noted only as the next job begins: nobody lived
// to do so before.
const (
	RequeuedBySlurm = "by Slurm itself"
	EndedUnsaid     = " did not live to say so: "
)

// NotedLate reports whether e is such a requeue, or such an end of a link.
func (e Event) NotedLate() bool {
	return e.Detail == RequeuedBySlurm || strings.Contains(e.Detail, EndedUnsaid)
}
