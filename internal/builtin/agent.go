package builtin

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/backoff"
	"ddpbatch/internal/vfs"
	"ddpbatch/mpi/launch/watch"
	"ddpbatch/trainer"
)

// beatEvery is the shortest time between two changes of the heartbeat file: steps may take microseconds.
const beatEvery = time.Second

// heartbeat shows the agent that this rank makes progress, by the file DDPBATCH_HEARTBEAT_FILE. The code that does the
// work calls beat. A separate goroutine would make a rank that hangs seem alive. It may be used by several goroutines at once.
type heartbeat struct {
	path   string // "": there is no heartbeat file
	began  time.Time
	next   atomic.Int64              // when to change the file again, since began
	step   atomic.Int64              // the last finished step; 0: none
	spent  [watch.Parts]atomic.Int64 // time.Durations spent in steps
	log    *slog.Logger
	warned sync.Once
}

func newHeartbeat(path string, log *slog.Logger) *heartbeat {
	return &heartbeat{path: path, began: time.Now(), log: log}
}

func (h *heartbeat) beat() {
	if h.path == "" {
		return
	}
	now, next := int64(time.Since(h.began)), h.next.Load()
	if now < next || !h.next.CompareAndSwap(next, now+int64(beatEvery)) {
		return
	}
	if err := h.write(); err != nil {
		h.warned.Do(func() { h.log.Warn("the agent may take this rank for hung", "error", err) })
	}
}

// progress records the rank's last step and times for the next beat.
func (h *heartbeat) progress(step int64, spent trainer.Spent) {
	h.step.Store(step)
	h.spent[watch.Compute].Store(int64(spent.Compute))
	h.spent[watch.Input].Store(int64(spent.Input))
	h.spent[watch.Comm].Store(int64(spent.Comm))
}

// write changes the file; before the first step it changes only the file's time. All lines have the same length, and each replaces the one
// before it, so that a reader always finds a whole line.
func (h *heartbeat) write() error {
	b := watch.Beat{Step: h.step.Load()}
	if b.Step == 0 {
		return touch(h.path, time.Now())
	}
	for part := range b.Spent {
		b.Spent[part] = time.Duration(h.spent[part].Load()).Seconds()
	}
	f, err := os.OpenFile(h.path, os.O_WRONLY|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	const length = 127
	line := watch.AppendBeat(make([]byte, 0, length+1), b)
	for len(line) < length {
		line = append(line, ' ')
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// touch sets the time of a file to now, and makes the file if it does not exist.
func touch(path string, now time.Time) error {
	err := os.Chtimes(path, now, now)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// fs returns the operating system's file system, with writes that also call beat: while a large model is saved there are no steps.
func (h *heartbeat) fs() vfs.FS { return beatingFS{vfs.OS{}, h} }

type beatingFS struct {
	vfs.FS
	heart *heartbeat
}

// PrivateDir and Within are not part of vfs.FS.
func (b beatingFS) PrivateDir(name string) error { return vfs.PrivateDir(b.FS, name) }
func (b beatingFS) Within(dir string) vfs.FS     { return beatingFS{vfs.Within(b.FS, dir), b.heart} }

func (b beatingFS) Create(name string) (vfs.File, error) {
	f, err := b.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return beatingFile{f, b.heart}, nil
}

type beatingFile struct {
	vfs.File
	heart *heartbeat
}

func (b beatingFile) Write(p []byte) (int, error) {
	n, err := b.File.Write(p)
	if n > 0 {
		b.heart.beat()
	}
	return n, err
}

// stopFileLook is the longest time between checks for the stop file. The times are random, as ranks that begin together would otherwise ask
// a file server together.
const stopFileLook = time.Second

// askedToStop returns a channel that is closed when this rank is asked to save and end: by a signal that ends ctx, or by a warning, which
// comes as launch.warn_signal and as the file DDPBATCH_STOP_FILE. One of these may come before askedToStop listens, or never. The caller
// calls end to stop listening.
func (r *Rank) askedToStop(ctx context.Context) (stop <-chan struct{}, end func()) {
	asked, over := make(chan struct{}), make(chan struct{})
	signals := make(chan os.Signal, 1)
	if sig := unix.SignalNum("SIG" + r.Job.Launch.WarnSignal); sig != 0 && r.get("DDPBATCH_STOP_FILE") != "" {
		signal.Notify(signals, sig)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		defer signal.Stop(signals)
		stopFile := r.get("DDPBATCH_STOP_FILE")
		exists := func() bool {
			if stopFile == "" {
				return false
			}
			_, err := os.Lstat(stopFile)
			return err == nil
		}
		if awaitWarning(ctx, signals, exists, over) {
			close(asked)
		}
	})
	return asked, func() {
		close(over)
		wg.Wait()
	}
}

// awaitWarning returns true when a warning has come, and false when over is closed.
func awaitWarning(ctx context.Context, signals <-chan os.Signal, stopFileExists func() bool, over <-chan struct{}) bool {
	if stopFileExists() {
		return true // the warning came before this rank listened
	}
	for wait := (backoff.Backoff{First: stopFileLook, Most: stopFileLook}); ; {
		select {
		case <-ctx.Done():
			return true
		case <-signals:
			return true
		case <-time.After(wait.Next()):
			if stopFileExists() {
				return true
			}
		case <-over:
			return false
		}
	}
}
