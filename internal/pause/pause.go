package pause

import (
	"context"
	"time"
)

// For waits for d, and returns at once if d is not positive. If ctx ends first, For returns its error.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Until waits until the given time, as For does.
func Until(ctx context.Context, at time.Time) error {
	return For(ctx, time.Until(at))
}

// Await receives from c. It waits for at most d, and reports whether a value came or c was closed. It waits in twenty parts, each a
// twentieth of d. While this process gets no processor, only one part can pass, so a sender in this process that is delayed for the
// same reason still has time to send.
func Await[T any](c <-chan T, d time.Duration) (value T, came bool) {
	const moments = 20
	for range moments {
		select {
		case value = <-c:
			return value, true
		case <-time.After(d / moments):
		}
	}
	return value, false
}
