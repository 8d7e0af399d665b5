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

// flightWait is how long writing a flight record may take. If the file system does not answer, the dump of the goroutines shows it.
const flightWait = 500 * time.Millisecond

// recordOnQuit makes SIGQUIT, by which an agent asks a rank that hangs for its goroutines, first write the flight record. After that the
// signal has its usual effect. The caller calls end to undo this.
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
			_ = unix.Kill(os.Getpid(), syscall.SIGQUIT) // a process may always signal itself
		case <-over:
			signal.Stop(signals)
		}
	})
	return func() {
		close(over)
		wg.Wait()
	}
}

// writeFlight writes the record, and waits for that at most flightWait.
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
		r.Log.Warn("cannot write the flight record", "file", path, "error", err)
	}
}
