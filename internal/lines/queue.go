package lines

import (
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"ddpbatch/internal/pause"
	"ddpbatch/internal/text"
)

// Queue is a writer that never waits for the writer below it: an agent must stop its workers even if nobody reads its console. Messages
// that arrive while the queue is full are dropped and counted.
type Queue struct {
	lines   chan []byte // nil marks the end
	dropped atomic.Int64
	done    chan struct{}
}

// How many messages the queue holds for a slow console, and how long End waits for the last ones.
const (
	queueLength  = 1 << 10
	flushTimeout = time.Second
)

// NewQueue returns a Queue that writes to to. The caller must call End.
func NewQueue(to io.Writer) *Queue {
	q := &Queue{lines: make(chan []byte, queueLength), done: make(chan struct{})}
	go func() {
		defer close(q.done)
		for line := <-q.lines; line != nil; line = <-q.lines {
			n := q.dropped.Swap(0)
			if n > 0 {
				line = fmt.Appendf(line, "ddpbatch: %s lost: nobody read the console\n", text.Plural(int(n), "message"))
			}
			if _, err := to.Write(line); err != nil {
				q.dropped.Add(n + 1) // and go on: the console may be read again later
			}
		}
	}()
	return q
}

// Write takes a whole message. Messages written after End are lost.
func (q *Queue) Write(p []byte) (int, error) {
	select {
	case q.lines <- append([]byte{}, p...):
	default:
		q.dropped.Add(1)
	}
	return len(p), nil
}

// End waits for the remaining messages to be shown, but only for a limited time: if nobody reads the output, the goroutine ends with the
// program. Time in which this process gets no processor does not count.
func (q *Queue) End() {
	select {
	case q.lines <- nil:
	default: // the queue is full
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
