package backoff

import (
	"context"
	"math/rand/v2"
	"time"

	"ddpbatch/internal/pause"
)

// Backoff is one series of pauses. It belongs to one goroutine.
type Backoff struct {
	First time.Duration // the bound of the first pause; above 0
	Most  time.Duration // of all pauses

	bound time.Duration // of the last pause; 0: there was none
}

// Wait waits for the next pause. The error is that of ctx, if ctx has ended by then.
func (b *Backoff) Wait(ctx context.Context) error { return pause.For(ctx, b.Next()) }

// Next is the next pause, for who waits for something else beside it.
func (b *Backoff) Next() time.Duration {
	b.bound = min(max(2*b.bound, b.First), b.Most)
	half := b.bound / 2
	return half + rand.N(b.bound-half+1)
}

// Reset has the series begin anew, as a try has succeeded.
func (b *Backoff) Reset() { b.bound = 0 }
