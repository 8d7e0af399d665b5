package backoff

import (
	"context"
	"math/rand/v2"
	"time"

	"ddpbatch/internal/pause"
)

// Backoff is a series of pauses. It may be used by one goroutine at a time.
type Backoff struct {
	First time.Duration // the bound of the first pause; above 0
	Most  time.Duration // the bound of all pauses

	bound time.Duration // the bound of the last pause; 0: there was none
}

// Wait waits for the length of the next pause. It returns the error of ctx if ctx has ended by then.
func (b *Backoff) Wait(ctx context.Context) error { return pause.For(ctx, b.Next()) }

// Next returns the length of the next pause, for callers that also wait for something else.
func (b *Backoff) Next() time.Duration {
	b.bound = min(max(2*b.bound, b.First), b.Most)
	half := b.bound / 2
	return half + rand.N(b.bound-half+1)
}

// Reset starts the series again, after a try has succeeded.
func (b *Backoff) Reset() { b.bound = 0 }
