package pause

import (
	"context"
	"time"
)

// For waits for d, which may be nothing or less. The error is that of ctx, if ctx has ended by then.
func For(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err()
}

// Until waits for the time at.
func Until(ctx context.Context, at time.Time) error {
	return For(ctx, time.Until(at))
}

// Await receives from c, for which it waits for d at most, and tells whether something came, or c was closed. Only moments in which this
// process runs count, each with a twentieth of d: whoever is to send, and gets no processor for a while, is waited for.
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
