package engine

import "sync/atomic"

// Op is one posted send or receive. It belongs to whoever made it, who may use it
// again once it is done; until then it must stay where it is.
type Op struct {
	next  *Op
	group *Group
	peer  int32 // world rank; Any for a receive from any
	recv  bool
	kind  frameKind
	call  Call
	buf   []byte
	moved int    // bytes on their way so far; of a send: those of the header, too
	tried bool   // a send: the link was asked to take it, and may hold its next byte
	order uint64 // of a receive: when it was posted, to set those from Any against the others
	head  [headerSize]byte
	done  atomic.Bool
	err   error   // set before done
	from  int     // of a receive that is done: world rank that sent the message
	got   Call    // of a receive that is done: the message's label
	size  int     // of a receive that is done: the message's bytes
	waits *waiter // those who sleep until this is done

	pursued bool // it is among those that Engine.pursued counts
}

// Done tells whether the op is done: well, or with an error.
func (op *Op) Done() bool { return op.done.Load() }

// matches tells whether a data frame is what the receive op waits for.
func (op *Op) matches(h *header) bool {
	return op.kind == h.kind && op.call.Group == h.call.Group && op.call.Seq == h.call.Seq
}

// complete ends the op, and lets go of the caller's memory. mu is held.
func (e *Engine) complete(op *Op, err error) {
	op.err, op.buf = err, nil
	if op.pursued {
		op.pursued = false
		e.pursued--
	}
	w := op.waits
	op.waits = nil
	op.done.Store(true) // op may be used again from here on
	if w == nil && len(e.sleepers) > 0 {
		e.wakeReady() // a condition may be about op
	}
	for w != nil {
		next := w.next
		w.next = nil
		e.wake(w)
		w = next
	}
}

// opList is a queue of ops.
type opList struct{ first, last *Op }

func (l *opList) push(op *Op) {
	op.next = nil
	if l.first == nil {
		l.first = op
	} else {
		l.last.next = op
	}
	l.last = op
}

func (l *opList) pop() *Op {
	op := l.first
	if l.first = op.next; l.first == nil {
		l.last = nil
	}
	op.next = nil
	return op
}

// find returns the first op that f chooses, and the one before it, or nil.
func (l *opList) find(f func(*Op) bool) (before, op *Op) {
	for op = l.first; op != nil && !f(op); op = op.next {
		before = op
	}
	return before, op
}

// take removes the first op that f chooses, or returns nil.
func (l *opList) take(f func(*Op) bool) *Op {
	before, op := l.find(f)
	if op != nil {
		l.unlink(before, op)
	}
	return op
}

// count tells how many ops of a kind there are.
func (l *opList) count(k frameKind) int {
	n := 0
	for op := l.first; op != nil; op = op.next {
		if op.kind == k {
			n++
		}
	}
	return n
}

// unlink removes op, which follows before; nil: it is the first.
func (l *opList) unlink(before, op *Op) {
	if before == nil {
		l.first = op.next
	} else {
		before.next = op.next
	}
	if l.last == op {
		l.last = before
	}
	op.next = nil
}
