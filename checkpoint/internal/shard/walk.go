package shard

import (
	"context"
	"sync"
)

// walk takes chunks to a target, in runs of up to batchBytes, by several goroutines that go through the file
// side by side.
type walk struct {
	reader *Reader
	target target
	end    int

	mu   sync.Mutex // guards what is below
	next int
	err  error // the first
}

// do walks with so many goroutines, the caller's among them.
func (w *walk) do(ctx context.Context, workers int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	work := func() {
		if err := w.work(ctx); err != nil {
			w.fail(err)
			cancel()
		}
	}
	var tasks sync.WaitGroup
	for range min(workers, w.end-w.next) - 1 {
		tasks.Go(work)
	}
	work()
	tasks.Wait()
	return w.err
}

func (w *walk) work(ctx context.Context) error {
	s := w.reader.scratch.get()
	defer w.reader.scratch.put(s)
	for {
		first, end := w.take()
		if first == end {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.reader.run(s, first, end, w.target); err != nil {
			return err
		}
	}
}

// take is the next run; an empty one at the end.
func (w *walk) take() (first, end int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	first = w.next
	for size := int64(0); w.next < w.end && w.next-first < batchChunks; w.next++ {
		_, from, to := w.reader.plan.at(w.next)
		size += to - from
		if size > batchBytes || w.reader.direct(w.next, w.target) != w.reader.direct(first, w.target) {
			break
		}
	}
	return first, w.next
}

func (w *walk) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
}
