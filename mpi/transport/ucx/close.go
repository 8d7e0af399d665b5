package ucx

import (
	"errors"
	"slices"
	"time"

	"ddpbatch/internal/clib"
)

// pace is the interval at which a worker that waits for other ranks outside of the engine makes progress.
const pace = 100 * time.Microsecond

var errClosed = errors.New("the link is closed")

// CloseLinks closes all links once everything that was written has arrived, or limit is over, and reports which. In the second case
// it closes links that have not finished by force. If a user's settings make UCX send short messages by rendezvous, too, a message
// has arrived when its request has ended; a flush does not wait for that.
func (w *Worker) CloseLinks(limit time.Duration) (delivered bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	deadline := time.Now().Add(limit)
	delivered = w.progressUntil(deadline, func() bool {
		for _, l := range w.links {
			if l.isSending() {
				return false
			}
		}
		return true
	})
	var closing []uintptr
	for _, l := range w.links {
		if l.endpoint == 0 {
			l.sendErr, l.readErr = errClosed, errClosed
			continue
		}
		p := &w.blocks.request
		*p = requestParams{}
		if l.gone || l.sendErr != nil || l.isSending() {
			p.fields, p.flags = requestFlags, closeForced
		}
		l.sendErr, l.readErr = errClosed, errClosed
		request, ended := started(w.do(w.lib.fn.endpointClose, l.endpoint, clib.Address(p)))
		if request != 0 {
			closing = append(closing, request)
		} else if ended != statusOK {
			delivered = false
		}
	}
	closed := w.progressUntil(deadline, func() bool {
		closing = slices.DeleteFunc(closing, func(request uintptr) bool {
			done, err := w.ended(request)
			delivered = delivered && err == nil
			return done
		})
		return len(closing) == 0
	})
	return delivered && closed
}

// isSending reports whether UCX is still sending what was written, and may finish.
func (l *Link) isSending() bool {
	l.finish()
	return !l.gone && l.sendErr == nil && l.copies.len()+l.direct.len() > 0
}

// progressUntil lets UCX make progress until done returns true or the deadline has passed. mu is held.
func (w *Worker) progressUntil(deadline time.Time, done func() bool) bool {
	for !done() {
		if !time.Now().Before(deadline) {
			return false
		}
		w.progress()
	}
	return true
}

// Progress lets UCX make progress for other ranks that close their links.
func (w *Worker) Progress() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.progress()
}

// ProgressUntil lets UCX make progress for other ranks until done is closed.
func (w *Worker) ProgressUntil(done <-chan struct{}) {
	look := time.NewTicker(pace)
	defer look.Stop()
	for {
		select {
		case <-done:
			return
		case <-look.C:
			w.Progress()
		}
	}
}

// Destroy releases the worker and its memory. CloseLinks must have reported true, and all other ranks must have closed their links:
// UCX aborts a process that destroys a worker earlier. A worker with messages under way is not destroyed, and lasts until the
// process ends.
func (w *Worker) Destroy() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed || w.worker == 0 {
		return
	}
	w.closed = false
	w.poll() // takes the last messages
	w.closed = true
	for _, l := range w.links {
		if !l.dropAll() {
			return
		}
	}
	w.destroy()
}

// dropAll releases the requests and messages of UCX that the link holds, and reports whether it could release all.
func (l *Link) dropAll() bool {
	w := l.worker
	for _, s := range append(l.copies.all(), l.direct.all()...) {
		if done, _ := w.ended(s.request); !done {
			return false
		}
	}
	if l.incoming.active && !l.incomingEnded() {
		return false
	}
	for _, m := range l.arrived.all() {
		if m.length > maxCopy {
			return false // the other rank may still hold its data
		}
		piece, _ := w.slab.piece(int(m.length), w.growSlab)
		if piece == nil {
			return false
		}
		if l.receive(m, piece[:m.length], 0); !l.incomingEnded() {
			return false
		}
	}
	return true
}

// destroy also releases a worker that was not opened completely.
func (w *Worker) destroy() {
	f := &w.lib.fn
	if w.worker != 0 {
		w.do(f.workerDestroy, w.worker)
	}
	for _, r := range w.slab.regions {
		w.do(f.memoryUnmap, w.context, r.registered)
		r.release()
	}
	if w.context != 0 {
		w.do(f.cleanup, w.context)
	}
	w.worker, w.context, w.slab = 0, 0, slab{}
}

// Lanes lists what UCX sends the link's bytes by, as transport/device:port, such as rc_mlx5/mlx5_0:1. It is empty if UCX does not
// report that, or has not connected.
func (l *Link) Lanes() string {
	w := l.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed || l.endpoint == 0 {
		return ""
	}
	open, closeFile, free := clib.Self.Symbol("open_memstream"), clib.Self.Symbol("fclose"), clib.Self.Symbol("free")
	if open == 0 || closeFile == 0 || free == 0 {
		return ""
	}
	out := &w.blocks.out
	file := w.do(open, clib.Address(&out[0]), clib.Address(&out[1]))
	if file == 0 {
		return ""
	}
	w.do(w.lib.fn.endpointPrint, l.endpoint, file)
	w.do(closeFile, file)
	text := clib.String(out[0])
	w.do(free, out[0])
	return lanes(text)
}
