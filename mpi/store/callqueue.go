package store

import "sync"

// callQueue calls functions one at a time, in the order in which they were
// added, on a goroutine of its own.
type callQueue struct {
	mu      sync.Mutex
	added   sync.Cond
	waiting []func()
	closed  bool
	done    chan struct{}
}

func newCallQueue() *callQueue {
	q := &callQueue{done: make(chan struct{})}
	q.added.L = &q.mu
	go q.run()
	return q
}

func (q *callQueue) add(f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, f)
	q.added.Signal()
}

// close returns when all that was added has been called.
func (q *callQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.added.Signal()
	q.mu.Unlock()
	<-q.done
}

func (q *callQueue) run() {
	defer close(q.done)
	q.mu.Lock()
	defer q.mu.Unlock()
	for {
		for len(q.waiting) == 0 {
			if q.closed {
				return
			}
			q.added.Wait()
		}
		f := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.mu.Unlock()
		f()
		q.mu.Lock()
	}
}
