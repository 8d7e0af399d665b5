package rundir

import (
	"context"
	"errors"
	"syscall"
	"time"

	"ddpbatch/internal/pause"
)

const (
	staleTries = 4
	stalePause = 50 * time.Millisecond
)

// fresh reads again what was stale: a file that another node replaces while it is read here, as only network file systems have it (ESTALE).
func fresh[T any](read func() (T, error)) (T, error) {
	for try := 1; ; try++ {
		got, err := read()
		if try == staleTries || !errors.Is(err, syscall.ESTALE) {
			return got, err
		}
		_ = pause.For(context.Background(), stalePause) // which nothing cuts short
	}
}
