package shm

import (
	"errors"
	"fmt"
	"math/bits"
)

// Node is one rank's part in the collectives of a group whose ranks all share memory. Its calls are collective: all ranks make the same
// ones in the same order, with the same lengths, except for calls whose names end with V. A Node is for one goroutine at a time. Calls do
// not allocate.
//
// Every call begins with a cache line that holds the caller's Fingerprint. A rank compares a fingerprint before it uses any data of that
// rank, and all fingerprints are compared. So every rank gets a FingerprintError if they differ. Data travels in one of three ways, which
// is the same on all ranks:
//
//   - inline: short data is stored beside the fingerprints, and each rank takes what it needs. In a reduction of data that is not very
//     short, each rank combines a part, and leaves the result there;
//   - direct: if all ranks' buffers are in registered segments, they read and write each other's buffers. Broadcast, AllGather and AllToAll
//     also read data in a rank's own memory, if the kernel allows it;
//   - staged: otherwise buffers pass in chunks through memory that stays in the cache.
//
// Calls with blocks of different lengths, whose names end with V, choose a way for each block; see exchange. So do gathers and scatters
// that do not fit inline.
//
// In an inline broadcast, gather, scatter, scan or reduction to one rank, a rank waits only for the ranks whose data it needs. It compares
// the fingerprints of the others in the next call, or in CatchUp. A call returns only when all ranks are known to have been in the call
// before it.
//
// So when a rank begins call s, it knows that all ranks have begun call s-2. They have returned from call s-3, and know that all ranks have
// been in call s-4. The slot of call s-4 can be used again, but not that of a later call. So there are four slots.
//
// All reductions keep the canonical order of package algorithm.
//
// After an error the Node is unusable, and each call returns that error again.
type Node struct {
	rank    int
	ranks   []rankState
	regions [][][]byte // registered segments, by region and rank
	err     error

	readable bool // each rank can read the others' memory

	seq         uint64 // the number of the call
	fingerprint Fingerprint
	before      Fingerprint // the fingerprint of the previous call
	whom        span        // the ranks for which this rank waits, or has waited
	behind      bool        // some ranks are not known to have been in the previous call
	mismatch    error       // set by hasEntered

	counts [counterKinds]uint64 // this rank's counters
	kind   int                  // the kind of counter that awaitRanks waits for,
	goal   uint64               // the value that it waits for,
	next   int                  // from this rank on,
	until  int                  // to before this rank

	sources, targets [][]byte // of the piece that is combined: by rank; in the order of writing
	scratch          [][]byte // memory for combine, by level

	hasEntered, hasReached func() bool // entered and reached; made once, for Await
}

// rankState is what a rank knows about another rank, or about itself.
type rankState struct {
	area
	pid     int
	seen    uint64 // the last call that the rank is known to be in
	ref     uint64 // the reference in its slot of that call
	view    []byte // its registered buffer; nil: its buffer is in its own memory,
	address uint64 // at this address
}

// NewNode returns rank's part. areas are the segments of all ranks, by rank, at most MaxRanks. Each rank makes its own with AreaSize bytes,
// for this Node alone. They must stay open as long as the Node is used. readable says that ReadsOwner returns true for all areas on all
// ranks.
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

// Readable returns the argument readable of NewNode.
func (n *Node) Readable() bool { return n.readable }

// Register registers a region: memory of all ranks that may contain the buffers of calls. segs are the ranks' segments, by rank. All ranks
// register the same ones in the same order, between the same two calls.
func (n *Node) Register(segs []*Segment) error {
	if len(n.regions) == maxRegions {
		return fmt.Errorf("register segments: the limit of %d regions is reached", maxRegions)
	}
	region := make([][]byte, len(segs))
	for r, s := range segs {
		region[r] = s.Bytes()
	}
	n.regions = append(n.regions, region)
	return nil
}

// Waiter is how a rank waits for the others of its group, and wakes ranks that sleep.
type Waiter interface {
	// Entered is called once in each call: when the other ranks can see that this rank has made it, and before this rank waits for them. It
	// does what Notify does, and may take a little time for work that need not delay the others. It returns the group's failure.
	Entered() error

	// Await returns nil when ready has returned true, or an error if the group has failed or the call was canceled. It may call ready any
	// number of times, on the caller's goroutine.
	Await(ready func() bool) error

	// Notify is called after each change that another rank may wait for.
	Notify()
}

// Fingerprint identifies a call. Node does not interpret it. It is the same on all ranks that are in the same call.
type Fingerprint [4]uint64

// ErrCorrupt means that a peer has left values in shared memory that a correct peer never leaves.
var ErrCorrupt = errors.New("shared memory is corrupt")

// FingerprintError says that two ranks made different calls at the same time.
type FingerprintError struct {
	Rank        int         // the other rank
	Fingerprint Fingerprint // the other rank's fingerprint
	Own         Fingerprint // this rank's fingerprint of the same call
}

func (e *FingerprintError) Error() string { return fmt.Sprintf("rank %d is in another call", e.Rank) }

// Barrier returns when every rank has called it. It takes one exchange of flags.
func (n *Node) Barrier(w Waiter, fingerprint Fingerprint) error {
	return n.enter(w, fingerprint, 0, nil, n.all())
}

// span is a range of ranks, without the rank to.
type span struct{ from, to int }

func (n *Node) all() span { return span{0, len(n.ranks)} }

func only(rank int) span { return span{rank, rank + 1} }

func (s span) has(rank int) bool { return s.from <= rank && rank < s.to }

func (s span) len() int { return s.to - s.from }

// enter publishes that this rank is in a call. It waits until the ranks of whom are in it, too, and until all ranks have been in the
// previous call. ref is the reference to a registered buffer. If it is 0, inline is the data that other ranks take from this one.
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

// CatchUp waits until all ranks have entered the last call. It is not a call itself.
func (n *Node) CatchUp(w Waiter) error {
	if n.err != nil || n.CaughtUp() {
		return n.err
	}
	return n.awaitEntry(w, n.all())
}

// awaitEntry waits until the ranks of whom are in this call, and all ranks have been in the previous one.
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

// place is the index of the call's slot and inline data, and nextPlace that of the next call's.
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
		n.mismatch = fmt.Errorf("%w: rank %d is in call %d, but this is call %d", ErrCorrupt, r, flag, seq)
		return false
	}
	if there := s.fingerprint; there != *own {
		n.mismatch = &FingerprintError{Rank: r, Fingerprint: there, Own: *own}
		return false
	}
	state.seen, state.ref = seq, s.ref
	return true
}

// The kinds of counters of a rank. They count over all calls.
const (
	filled   = iota // chunks that others may read
	finished        // pieces that are reduced, or no longer needed
	taken           // the last call in which the rank has read all blocks of different lengths that it reads
	gone            // failures: buffers that other ranks may be reading may have changed
	counterKinds
)

// count increments one of this rank's counters.
func (n *Node) count(w Waiter, kind int) {
	n.counts[kind]++
	n.ranks[n.rank].counters[kind].Store(n.counts[kind])
	w.Notify()
}

// await waits until every rank's counter has reached goal.
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

// reached reports whether the counters have reached the goal. It does not look again at a counter that has.
func (n *Node) reached() bool {
	for ; n.next < n.until; n.next++ {
		if n.next != n.rank && n.ranks[n.next].counters[n.kind].Load() < n.goal {
			return false
		}
	}
	return true
}

// fail stores the first error. It also marks this rank as failed: its caller may now change the buffers, and ranks that are still reading
// them must notice.
func (n *Node) fail(err error) error {
	n.err = err
	n.ranks[n.rank].counters[gone].Store(1)
	return err
}
