package shm

import (
	"errors"
	"fmt"
	"math/bits"
)

// Node is one rank's part in the collectives of a group whose ranks all share memory. Its calls
// are collective: all ranks make the same ones in the same order, with the same lengths, but for those whose names end with V. A Node is
// for one goroutine at a time. No call allocates.
//
// Every call begins with a line of its own in memory, which holds the caller's Fingerprint: no data of a rank is touched before its
// fingerprint has been compared, and those of all ranks are, so that there is a FingerprintError on every rank if they differ. Data
// goes one of three ways, which all ranks choose alike:
//
//   - inline: short data lies beside the fingerprints, and each rank takes what it needs, or, of what is to be reduced and not very
//     short, combines a part, and leaves the result there;
//   - direct: where all ranks' buffers are in registered segments, they read and write
//     each other's; Broadcast, AllGather and AllToAll also read what is in a rank's own memory, where the kernel lets them;
//   - staged: else buffers pass in chunks through memory that stays in the cache.
//
// The calls with blocks of different lengths, whose names end with V, choose a way for each block; see exchange. So do gathers and scatters
// that do not fit inline.
//
// In an inline broadcast, gather, scatter, scan or reduction to one rank, a rank waits only for those whose data it needs. The others'
// fingerprints are compared in the next call, or in CatchUp: no call returns before all ranks are known to have been in the one before it.
//
// So a rank that begins call s knows that all have begun call s-2, and thus have returned from call s-3, and know of all that they were
// in call s-4: the slot of that one can be used again, and not that of a later one. So there are four.
//
// Reductions keep the canonical order of package algorithm on all of them.
//
// After an error the Node is of no more use, and each call returns that error again.
type Node struct {
	rank    int
	ranks   []rankState
	regions [][][]byte // registered segments, by region and rank
	err     error

	readable bool // each rank can read the others' memory

	seq         uint64 // the number of the call
	fingerprint Fingerprint
	before      Fingerprint // that of the call before
	whom        span        // the ranks that are, or were, waited for
	behind      bool        // some are not known to have been in the call before
	mismatch    error       // what hasEntered found

	counts [counterKinds]uint64 // this rank's
	kind   int                  // which count of the others is waited for,
	goal   uint64               // to be what,
	next   int                  // by the ranks from here on,
	until  int                  // to before here

	sources, targets [][]byte // of the piece that is combined: by rank; in the order of writing
	scratch          [][]byte // of combine, by level

	hasEntered, hasReached func() bool // made once, for Await
}

// rankState is what a rank knows of another, or of itself.
type rankState struct {
	area
	pid     int
	seen    uint64 // the last call that it is known to be in
	ref     uint64 // of its slot there
	view    []byte // its registered buffer, or nil:
	address uint64 // then it is there, in its own memory
}

// NewNode makes rank's part. areas are the segments of all ranks, by rank, no more than MaxRanks: each made by its rank with
// AreaSize bytes, for this Node alone. They must stay open as long as the Node is used. readable says that ReadsOwner holds for all areas
// on all ranks.
func NewNode(rank int, areas []*Segment, readable bool) (*Node, error) {
	n := &Node{rank: rank, ranks: make([]rankState, len(areas)), readable: readable}
	n.whom = n.all()
	for r, s := range areas {
		a, err := newArea(s)
		if err != nil {
			return nil, fmt.Errorf("shared memory of rank %d: %w", r, err)
		}
		n.ranks[r].area, n.ranks[r].pid = a, s.Handle().PID
	}
	n.sources = make([][]byte, len(areas))
	n.targets = make([][]byte, 0, len(areas))
	n.scratch = make([][]byte, bits.Len(uint(len(areas)))+1)
	for i := range n.scratch {
		n.scratch[i] = make([]byte, foldBlock)
	}
	n.hasEntered, n.hasReached = n.entered, n.reached
	return n, nil
}

// Readable reports whether the ranks can read each other's memory, as NewNode was told.
func (n *Node) Readable() bool { return n.readable }

// Register makes a region known: memory of all ranks that calls may be given buffers from. segs are the
// ranks' segments by rank; all ranks register the same ones in the same order, between the same two calls.
func (n *Node) Register(segs []*Segment) error {
	if len(n.regions) == maxRegions {
		return fmt.Errorf("register segments: there are %d regions already", maxRegions)
	}
	region := make([][]byte, len(segs))
	for r, s := range segs {
		region[r] = s.Bytes()
	}
	n.regions = append(n.regions, region)
	return nil
}

// Waiter is how a rank waits for the others of its group, and wakes those that sleep.
type Waiter interface {
	// Entered is Notify when the other ranks can see that this one is in the call, and before it waits for them: once in each
	// call, and with time for what need not keep them waiting. It returns the group's failure.
	Entered() error

	// Await returns nil when ready has returned true, or an error when there is no more point in waiting
	// as the group has failed or the call was canceled. It calls ready as often as it
	// likes, on the goroutine of the caller.
	Await(ready func() bool) error

	// Notify is called after each change that another rank may wait for.
	Notify()
}

// Fingerprint is what tells a call from others: opaque here, the same for all ranks that are in the same call.
type Fingerprint [4]uint64

// ErrCorrupt says that a peer left values in shared memory that no correct one leaves.
var ErrCorrupt = errors.New("shared memory is corrupt")

// FingerprintError says that two ranks were in different calls at the same time.
type FingerprintError struct {
	Rank        int         // the other rank
	Fingerprint Fingerprint // what it gave
	Own         Fingerprint // what this rank gave for the same call
}

func (e *FingerprintError) Error() string { return fmt.Sprintf("rank %d is in another call", e.Rank) }

// Barrier returns when every rank has called it: one exchange of flags.
func (n *Node) Barrier(w Waiter, fingerprint Fingerprint) error {
	return n.enter(w, fingerprint, 0, nil, n.all())
}

// span is the ranks from one to before another.
type span struct{ from, to int }

func (n *Node) all() span { return span{0, len(n.ranks)} }

func only(rank int) span { return span{rank, rank + 1} }

func (s span) has(rank int) bool { return s.from <= rank && rank < s.to }

func (s span) len() int { return s.to - s.from }

// enter publishes that this rank is in a call, and waits until whom are, and all have been in the call before. ref is
// that of a registered buffer, or 0; then inline is what others take from here.
func (n *Node) enter(w Waiter, fingerprint Fingerprint, ref uint64, inline []byte, whom span) error {
	if n.err != nil {
		return n.err
	}
	n.seq++
	n.before, n.fingerprint, n.behind = n.fingerprint, fingerprint, !n.CaughtUp()
	me := &n.ranks[n.rank]
	me.seen, me.ref = n.seq, ref
	s := me.slots[n.place()]
	s.fingerprint, s.ref = fingerprint, ref
	if ref == 0 {
		copy(me.data(n.place(), len(inline)), inline)
	}
	s.flag.Store(n.seq)
	if err := w.Entered(); err != nil {
		return n.fail(err)
	}
	return n.awaitEntry(w, whom)
}

// CaughtUp reports whether all ranks are known to have been in the last call.
func (n *Node) CaughtUp() bool { return n.whom == n.all() }

// CatchUp waits until all ranks have entered the last call. It does not count as a call.
func (n *Node) CatchUp(w Waiter) error {
	if n.err != nil || n.CaughtUp() {
		return n.err
	}
	return n.awaitEntry(w, n.all())
}

// awaitEntry waits until whom are in this call, and all have been in the one before.
func (n *Node) awaitEntry(w Waiter, whom span) error {
	n.whom = whom
	if err := w.Await(n.hasEntered); err != nil {
		return n.fail(err)
	}
	if n.mismatch != nil {
		return n.fail(n.mismatch)
	}
	return nil
}

// place is where the call's slot and inline data are, and nextPlace where those of the one to come will be.
func (n *Node) place() uint64     { return n.seq % places }
func (n *Node) nextPlace() uint64 { return (n.seq + 1) % places }

// entered reports whether awaitEntry has nothing more to wait for: the ranks of whom have entered this call, and all ranks the previous
// one; or a rank has made a different call, which entered stores as the mismatch. It looks at all ranks each time, so that a rank that
// never comes does not hide one that has made a different call.
func (n *Node) entered() bool {
	all := true
	if n.behind {
		all = n.enteredPrevious()
	}
	for r := n.whom.from; r < n.whom.to; r++ {
		if state := &n.ranks[r]; state.seen+1 == n.seq {
			all = n.see(r, n.seq, &n.fingerprint) && all
		}
	}
	return all || n.mismatch != nil
}

// enteredPrevious reports whether all ranks are known to have entered the previous call.
func (n *Node) enteredPrevious() bool {
	all := true
	for r := range n.ranks {
		if n.ranks[r].seen+1 < n.seq {
			all = n.see(r, n.seq-1, &n.before) && all
		}
	}
	n.behind = !all
	return all
}

// see reports whether rank r is known to have entered call seq, whose fingerprint on this rank is own. If r has made a different call, see
// stores that as the mismatch.
func (n *Node) see(r int, seq uint64, own *Fingerprint) bool {
	state := &n.ranks[r]
	s := state.slots[seq%places]
	switch flag := s.flag.Load(); {
	case flag < seq:
		return false
	case flag > seq:
		n.mismatch = fmt.Errorf("%w: rank %d is in call %d, and this is call %d", ErrCorrupt, r, flag, seq)
		return false
	}
	if there := s.fingerprint; there != *own {
		n.mismatch = &FingerprintError{Rank: r, Fingerprint: there, Own: *own}
		return false
	}
	state.seen, state.ref = seq, s.ref
	return true
}

// The counters of a rank: of what it has done over all calls.
const (
	filled   = iota // chunks that others may read
	finished        // pieces that are reduced, or no longer needed
	taken           // calls, up to the last one in which it has read all that it reads of blocks of different lengths
	gone            // failures: buffers that others may read are no longer what they were
	counterKinds
)

// count moves one of this rank's counters on.
func (n *Node) count(w Waiter, kind int) {
	n.counts[kind]++
	n.ranks[n.rank].counters[kind].Store(n.counts[kind])
	w.Notify()
}

// await waits until every rank's counter has come to goal.
func (n *Node) await(w Waiter, kind int, goal uint64) error {
	return n.awaitRanks(w, kind, goal, n.all())
}

// awaitRanks is await for some ranks.
func (n *Node) awaitRanks(w Waiter, kind int, goal uint64, ranks span) error {
	n.kind, n.goal, n.next, n.until = kind, goal, ranks.from, ranks.to
	if err := w.Await(n.hasReached); err != nil {
		return n.fail(err)
	}
	return nil
}

// reached tells whether the counters are at the goal. One that was needs no second look.
func (n *Node) reached() bool {
	for ; n.next < n.until; n.next++ {
		if n.next != n.rank && n.ranks[n.next].counters[n.kind].Load() < n.goal {
			return false
		}
	}
	return true
}

// fail keeps the first error. The caller's buffers are its own again: whoever is still reading them is to know.
func (n *Node) fail(err error) error {
	n.err = err
	n.ranks[n.rank].counters[gone].Store(1)
	return err
}
