package builtin

import (
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/pause"
)

// flightWait is how long a flight record may take to be written: where the file system does not answer, the goroutines say why.
const flightWait = 500 * time.Millisecond

// recordOnQuit has a QUIT, by which an agent asks a rank that hangs for its goroutines, write the flight record before it has its usual
// effect.
func (r *Rank) recordOnQuit() (end func()) {
	path := r.get("DDPBATCH_FLIGHT_FILE")
	if path == "" {
		return func() {}
	}
	signals, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGQUIT)
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-signals:
			r.writeFlight(path)
			signal.Reset(syscall.SIGQUIT)
			_ = unix.Kill(os.Getpid(), syscall.SIGQUIT) // this process, which may always
		case <-over:
			signal.Stop(signals)
		}
	})
	return func() {
		close(over)
		wg.Wait()
	}
}

// writeFlight waits for the record to be written, but not for long.
func (r *Rank) writeFlight(path string) {
	written := make(chan error, 1)
	go func() {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err == nil {
			err = errors.Join(r.comm.WriteFlight(f), f.Close())
		}
		written <- err
	}()
	if err, came := pause.Await(written, flightWait); !came || err != nil {
		r.Log.Warn("the flight recorder could not be written", "file", path, "error", err)
	}
}
