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
