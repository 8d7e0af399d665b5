package ucx

import (
	"slices"

	"ddpbatch/internal/clib"
)

// Event is a descriptor that becomes readable when there may be news, once the worker was armed. It belongs to UCX: callers must
// not read or close it.
func (w *Worker) Event() int { return w.event }

// Arm makes the descriptor of Event readable when there is news from now on. It reports whether there is news already: then the
// caller must call Ready instead of sleeping.
func (w *Worker) Arm() (news bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return true
	}
	if ucsStatus(w.do(w.lib.fn.workerArm, w.worker)) == statusBusy {
		return true
	}
	// Some devices (Soft-RoCE) do not signal what came between the last progress and the arming.
	return w.progress() || len(w.news) > 0
}

// Ready appends the ranks whose links may, since the last call, have something to read, or room to write again.
func (w *Worker) Ready(ranks []int) []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.poll()
	w.waiting = slices.DeleteFunc(w.waiting, func(l *Link) bool {
		l.isWaiting = !l.hasChanged()
		if !l.isWaiting {
			l.notify()
		}
		return !l.isWaiting
	})
	for _, l := range w.news {
		ranks = append(ranks, l.rank)
		l.isNews = false
	}
	w.news = w.news[:0]
	return ranks
}

// awaitChange makes Ready return the link once Read or Write can go on.
func (l *Link) awaitChange() {
	if !l.isWaiting {
		l.isWaiting = true
		l.worker.waiting = append(l.worker.waiting, l)
	}
}

// hasChanged reports whether a Read or Write that had to wait can go on now.
func (l *Link) hasChanged() bool {
	return l.incoming.active && l.incomingEnded() || l.isPartial && (l.hasRoom() || l.taken > 0 || l.sendErr != nil)
}

// notify makes Ready return the link.
func (l *Link) notify() {
	if !l.isNews {
		l.isNews = true
		l.worker.news = append(l.worker.news, l)
	}
}

// progress lets UCX make progress, and reports whether it had anything to do.
func (w *Worker) progress() bool { return uint32(w.do(w.lib.fn.workerProgress, w.worker)) != 0 }

// progressAtOnce is the most calls of progress in one poll.
const progressAtOnce = 64

// poll lets UCX make progress, and takes the messages that have come. mu is held.
func (w *Worker) poll() {
	if w.closed {
		return
	}
	w.isIdle = false
	for range progressAtOnce {
		if w.isIdle = !w.progress(); w.isIdle {
			break
		}
	}
	info := &w.blocks.info
	for {
		handle := w.do(w.lib.fn.probe, w.worker, 0, 0, 1, clib.Address(info)) // any tag; UCX hands over the message
		if handle == 0 {
			return
		}
		w.accept(message{handle, info.length}, info.tag)
	}
}

// accept passes a message to its link. It leaves a message without a valid rank in UCX: that costs memory, but its sender could do worse.
func (w *Worker) accept(m message, tag uint64) {
	l := w.links[int(tag>>rankShift&(MaxRanks-1))]
	if l == nil {
		return
	}
	l.acknowledge(tag & positionMask)
	l.arrived.push(m)
	l.notify()
}
