package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// stopFileLook is how often a rank looks for its stop file.
const stopFileLook = time.Second

// askedToStop is closed when this rank is asked to save and end: by a signal that ends ctx, or by a warning, which comes as
// launch.warn_signal and as the file DDPBATCH_STOP_FILE. One of them may come before this listens, or not at all.
func (r *rank) askedToStop(ctx context.Context) (stop <-chan struct{}, end func()) {
	asked, over := make(chan struct{}), make(chan struct{})
	signals := make(chan os.Signal, 1)
	if sig := unix.SignalNum("SIG" + r.job.Launch.WarnSignal); sig != 0 && r.e.get("DDPBATCH_STOP_FILE") != "" {
		signal.Notify(signals, sig)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer signal.Stop(signals)
		if awaitWarning(ctx, signals, r.e.get("DDPBATCH_STOP_FILE"), over) {
			close(asked)
		}
	})
	return asked, func() {
		close(over)
		wg.Wait()
	}
}

// awaitWarning is true when a warning has come, and false when it is over.
func awaitWarning(ctx context.Context, signals <-chan os.Signal, stopFile string, over <-chan struct{}) bool {
	tick := time.NewTicker(stopFileLook)
	defer tick.Stop()
	for {
		if _, err := os.Lstat(stopFile); err == nil && stopFile != "" {
			return true
		}
		select {
		case <-ctx.Done():
			return true
		case <-signals:
			return true
		case <-tick.C:
		case <-over:
			return false
		}
	}
}
