package lines

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"ddpbatch/internal/pause"
	"ddpbatch/internal/text"
)

// Queue is a writer that never waits for the one below it: an agent whose console nobody reads has workers to stop all the same. What comes
// while the queue is full is dropped, and counted.
type Queue struct {
	lines   chan []byte // nil: the last
	dropped atomic.Int64
	done    chan struct{}
}

// How many messages wait for a slow console, and how long the last ones do.
const (
	queueLength  = 1 << 10
	flushTimeout = time.Second
)

// NewQueue makes one that writes to to.
func NewQueue(to io.Writer) *Queue {
	q := &Queue{lines: make(chan []byte, queueLength), done: make(chan struct{})}
	go func() {
		defer close(q.done)
		for line := <-q.lines; line != nil; line = <-q.lines {
			n := q.dropped.Swap(0)
			if n > 0 {
				line = fmt.Appendf(line, "ddpbatch: %s came while nobody read the console, and are lost\n", text.Plural(int(n), "message"))
			}
			if _, err := to.Write(line); err != nil {
				q.dropped.Add(n + 1) // and go on: the console may be read again
			}
		}
	}()
	return q
}

// Write takes a whole message. After End it is lost.
func (q *Queue) Write(p []byte) (int, error) {
	select {
	case q.lines <- append([]byte{}, p...):
	default:
		q.dropped.Add(1)
	}
	return len(p), nil
}

// End waits for what is left to be shown, but not for long: where nobody reads, the goroutine ends with the program. A process that gets no
// processor for a while shows its last words all the same.
func (q *Queue) End() {
	select {
	case q.lines <- nil:
	default: // it is full
		timer := time.NewTimer(flushTimeout)
		defer timer.Stop()
		select {
		case q.lines <- nil:
		case <-timer.C:
			return
		}
	}
	pause.Await(q.done, flushTimeout)
}
