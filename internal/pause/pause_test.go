package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/pause"
)

func TestFor(t *testing.T) {
	tests := map[string]struct {
		d, limit, want time.Duration
		err            error
	}{
		"whole":     {d: time.Hour, limit: 2 * time.Hour, want: time.Hour},
		"cut short": {d: time.Hour, limit: time.Minute, want: time.Minute, err: context.DeadlineExceeded},
		"nothing":   {limit: time.Hour},
		"the past":  {d: -time.Hour, limit: time.Hour},
		"too late":  {limit: -1, err: context.DeadlineExceeded},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.limit)
				defer cancel()
				begun := time.Now()
				if err := pause.For(ctx, test.d); err != test.err {
					t.Errorf("For(%v) with %v: %v, want %v", test.d, test.limit, err, test.err)
				}
				if err := pause.Until(ctx, begun.Add(test.d)); err != test.err {
					t.Errorf("Until, when For has waited: %v, want %v", err, test.err)
				}
				if took := time.Since(begun); took != test.want {
					t.Errorf("took %v, want %v", took, test.want)
				}
			})
		})
	}
}
