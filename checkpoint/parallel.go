package checkpoint

import (
	"context"
	"sync"
)

// inParallel runs f for every item in so many goroutines, and stops at the first error, which it
// returns.
func inParallel[T any](ctx context.Context, workers int, items []T, f func(context.Context, T) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	work := make(chan T)
	var tasks sync.WaitGroup
	for range min(workers, len(items)) {
		tasks.Go(func() {
			for item := range work {
				if err := f(ctx, item); err != nil {
					stop(err)
					return
				}
			}
		})
	}
feed:
	for _, item := range items {
		select {
		case work <- item:
		case <-ctx.Done():
			break feed
		}
	}
	close(work)
	tasks.Wait()
	return context.Cause(ctx)
}
