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

// beatEvery is how often the heartbeat file is changed at most: steps may take microseconds.
const beatEvery = time.Second

// heartbeat shows the agent that this rank gets on, by the file DDPBATCH_HEARTBEAT_FILE. Whoever does a part of the
// work calls beat: were it a goroutine of its own, a rank that hangs would seem to live. Safe for concurrent use.
type heartbeat struct {
	path   string // "": nobody looks
	began  time.Time
	next   atomic.Int64              // when to change the file again, since began
	step   atomic.Int64              // the last that was finished; 0: none was
	spent  [watch.Parts]atomic.Int64 // time.Durations in steps
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

// progress notes where the rank is, for the next beat.
func (h *heartbeat) progress(step int64, spent trainer.Spent) {
	h.step.Store(step)
	h.spent[watch.Compute].Store(int64(spent.Compute))
	h.spent[watch.Input].Store(int64(spent.Input))
	h.spent[watch.Comm].Store(int64(spent.Comm))
}

// write changes the file: before the first step its time alone. The line has one length, and takes the place of the one before it, so
// that a reader finds a whole one at any time.
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

// touch says that a file was changed at now, and makes it if need be.
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

// fs is the operating system's file system, where what is written counts as getting on: the save of a large model, in which there are
// no steps.
func (h *heartbeat) fs() vfs.FS { return beatingFS{vfs.OS{}, h} }

type beatingFS struct {
	vfs.FS
	heart *heartbeat
}

// PrivateDir and Within are no part of vfs.FS.
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

// stopFileLook is the longest time between looks for the stop file. After the first look each rank has moments of its own: ranks that begin
// together would ask a file server together.
const stopFileLook = time.Second

// askedToStop is closed when this rank is asked to save and end: by a signal that ends ctx, or by a warning, which comes as
// launch.warn_signal and as the file DDPBATCH_STOP_FILE. One of them may come before this listens, or not at all.
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

// awaitWarning is true when a warning has come, and false when it is over.
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
