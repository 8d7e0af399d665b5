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
	maxLedger = 4 << 20 // bytes, for thousands of attempts; each line takes memory and time to read
	maxDetail = 4 << 10 // bytes of an event's text
)

// Event is a line of ledger.jsonl.
type Event struct {
	Time    time.Time `json:"time"`
	Event   string    `json:"event"` // one of the Event constants
	Attempt int       `json:"attempt,omitempty"`
	Job     string    `json:"job,omitempty"`   // of a begin or too-late: the Slurm job; of a cancel: the job or array
	Start   int       `json:"start,omitempty"` // of a begin: how often Slurm had started the job again (SLURM_RESTART_COUNT)
	Cause   string    `json:"cause,omitempty"` // why the attempt ended, a recovery.Cause
	Node    string    `json:"node,omitempty"`  // of the rank that failed first
	Nodes   []string  `json:"nodes,omitempty"` // of an end: those that failed; of a requeue: those left out
	Drain   bool      `json:"drain,omitempty"` // of an end: as in Verdict
	Unfit   []string  `json:"unfit,omitempty"` // of an end: as in Verdict
	Step    int64     `json:"step,omitempty"`
	Saved   bool      `json:"saved,omitempty"` // of an end: as in Verdict, and so are the next eight
	Signal  int       `json:"signal,omitempty"`
	WarnedS float64   `json:"warned_s,omitempty"`
	LeadS   float64   `json:"lead_s,omitempty"`
	Error   string    `json:"error,omitempty"` // cut after 4 KiB
	Class   string    `json:"class,omitempty"`
	Advice  string    `json:"advice,omitempty"`
	Final   bool      `json:"final,omitempty"`
	Trace   string    `json:"trace,omitempty"`
	Element *int      `json:"element,omitempty"` // of an array's resume or submitting: the only element concerned; nil: Spans
	Spans   [][2]int  `json:"spans,omitempty"`   // the elements concerned, as pairs of first and last index; empty: all
	Link    int       `json:"link,omitempty"`    // which link of a chain the job is, from 1; 0: not a chain
	Links   int       `json:"links,omitempty"`   // how many links the chain was to have
	Detail  string    `json:"detail,omitempty"`  // cut after 4 KiB

	NodeCount int `json:"node_count,omitempty"` // of a begin: how many nodes the job has; 0: not known, or as in the job's last begin
}

// maxIndices limits the result of Indices, because a ledger may hold anything.
const maxIndices = 1 << 20

// Indices returns the elements of an array that a submission concerns; none means all.
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

// SpansOf returns ascending indices in the form of an event's Spans.
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
	EventSubmit  = "submit"  // Slurm has accepted the run's first job
	EventResume  = "resume"  // a user resumed the run
	EventBegin   = "begin"   // an attempt began
	EventEnd     = "end"     // an attempt ended; a second event for the same attempt, with a better known cause, replaces the first
	EventRestart = "restart" // the agents restart the workers within the job
	EventRequeue = "requeue" // the job is about to be requeued
	EventRefused = "refused" // Slurm refused the requeue before this
	EventGiveUp  = "give-up" // the run does not continue by itself
	// other ranks or nodes than before are clearly slower than the rest, or none are any more; see the detail
	EventStraggler = "straggler"
	EventCancel    = "cancel" // a user asked Slurm to end the job

	EventLink    = "link"     // Slurm has accepted a further job of the run's chain, or a further array of its sweep
	EventLinkEnd = "link-end" // the job of a link has ended, and the next link continues

	EventSubmitting = "submitting" // Slurm is about to be asked to accept a job; the detail is the event that follows if it does
	EventNotTaken   = "not-taken"  // Slurm did not accept it
	EventTooLate    = "too-late"   // Slurm accepted a job after another command had claimed the run; that job must not begin
)

// Append durably adds e to the ledger in one write, taking turns with other processes. After a line that a crash has cut short it begins a
// new one.
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

// openLedger opens the ledger for appending. Root does so to cancel the run of another user. That user must not be able to redirect the
// write by a link, or get a ledger that only root can write to.
func (d *Dir) openLedger() (*os.File, error) {
	path := filepath.Join(d.path, ledgerName)
	dir, err := os.Lstat(d.path)
	if err != nil {
		return nil, err
	}
	flags := os.O_APPEND | os.O_RDWR | syscall.O_NOFOLLOW | syscall.O_NONBLOCK // does not wait for a pipe
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

// endsMidLine reports whether the last line of f has no newline.
func endsMidLine(f *os.File) (bool, error) {
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return false, err
	}
	var last [1]byte
	_, err = f.ReadAt(last[:], size-1)
	return last[0] != '\n', err
}

// SubmittedJob returns the job that the run was submitted as, if e records a submission, or that of a further link. A resume event may also
// record that Slurm restarted the same job; then ok is false.
func (e Event) SubmittedJob() (id string, ok bool) {
	if e.Event != EventSubmit && e.Event != EventResume && e.Event != EventLink {
		return "", false
	}
	return strings.CutPrefix(e.Detail, "job ")
}

// Event returns the ledger's event for the end of an attempt.
func (v Verdict) Event() Event {
	return Event{
		Time: v.Time, Event: EventEnd, Attempt: v.Attempt, Cause: v.Cause, Node: v.Host, Nodes: v.Nodes, Drain: v.Drain,
		Unfit: v.Unfit, Step: v.Step,
		Saved: v.Saved, Signal: v.Signal, WarnedS: v.WarnedS, LeadS: v.LeadS, Detail: v.Message,
		Error: v.Error, Class: v.Class, Advice: v.Advice, Final: v.Final, Trace: v.Trace,
	}
}

// Ledger reads all events, oldest first. It returns none if there is no ledger yet. The events of an array's element include the cancels of
// the array. Lines that a crash has cut short are left out.
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

// withCancels inserts the cancels of an array among an element's events, by time. The element's events keep their order, because the clocks
// of nodes differ.
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
	lockLimit     = 3 * time.Second // many times what a line takes; only a stopped process holds the lock for longer
	firstLockWait = 10 * time.Millisecond
	lastLockWait  = 25 * time.Millisecond // half of that on average: a line takes less, and no process may miss its turn for lockLimit
)

// waitForLock waits until no other process writes to f, and makes others wait until f is closed. On NFS that works between machines, and
// brings the file up to date (flock(2)). If the file system has no locks, or another process does not release it, f is written to without
// the lock: a line that may be lost is better than none.
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

// lock locks f for the process that has opened it.
func lock(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// Reasons for which simulate does not restart a job itself; another program that runs simulate may do so. They are details of EventGiveUp,
// by which status recognizes them.
const (
	OwnDeadline   = "DDPBATCH_DEADLINE is that of simulate itself"
	KilledAtLimit = "the batch script was killed at the time limit, before it could ask for a requeue"
)

// Details of a requeue, and of a link's end (after its job and before the reason), that are recorded only when the next job begins, because
// no process could do so before.
const (
	RequeuedBySlurm = "by Slurm itself"
	EndedUnsaid     = " did not live to say so: "
)

// NotedLate reports whether e is such a requeue, or such an end of a link.
func (e Event) NotedLate() bool {
	return e.Detail == RequeuedBySlurm || strings.Contains(e.Detail, EndedUnsaid)
}
