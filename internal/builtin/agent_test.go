package builtin

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/vfs"
	"ddpbatch/mpi/launch/watch"
	"ddpbatch/trainer"
)

func TestHeartbeatTouchesItsFileOnceASecond(t *testing.T) {
	path := filepath.Join(t.TempDir(), "beat")
	synctest.Test(t, func(t *testing.T) {
		h := newHeartbeat(path, slog.New(slog.DiscardHandler))
		changed := func() time.Time {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			return info.ModTime()
		}
		if h.beat(); changed().IsZero() {
			t.Error("no file")
		}
		old := time.Unix(1000, 0)
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
		for range 1000 { // a step takes 0.9 ms
			time.Sleep(beatEvery/1000 - 100*time.Microsecond)
			h.beat()
		}
		if !changed().Equal(old) {
			t.Error("changed twice in a second")
		}
		time.Sleep(beatEvery / 10)
		if h.beat(); changed().Equal(old) {
			t.Error("not changed after a second")
		}
	})
}

// TestHeartbeatHoldsTheStep: a heartbeat holds the step and the time spent in each part, and a later line replaces an earlier one
// completely.
func TestHeartbeatHoldsTheStep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "beat")
	h := newHeartbeat(path, slog.New(slog.DiscardHandler))
	for _, step := range []int64{123_456_789, 7} {
		h.progress(step, trainer.Spent{Compute: time.Duration(step) * time.Second, Input: time.Millisecond, Comm: time.Minute})
		h.next.Store(0)
		h.beat()
		text, err := os.ReadFile(path)
		want := watch.Beat{Step: step, Spent: [watch.Parts]float64{float64(step), 0.001, 60}}
		if got, ok := watch.ParseBeat(text); err != nil || !ok || got != want || bytes.Count(text, []byte("compute")) != 1 {
			t.Errorf("%q, %v: %+v; want %+v", text, err, got, want)
		}
	}
}

// BenchmarkProgress measures what the heartbeat adds to a step of the built-in trainer, without the write once a second.
func BenchmarkProgress(b *testing.B) {
	h := newHeartbeat(filepath.Join(b.TempDir(), "beat"), slog.New(slog.DiscardHandler))
	b.ReportAllocs()
	for i := range b.N {
		h.progress(int64(i), trainer.Spent{Compute: time.Duration(i)})
		h.beat()
	}
}

// BenchmarkBeat measures that write.
func BenchmarkBeat(b *testing.B) {
	h := newHeartbeat(filepath.Join(b.TempDir(), "beat"), slog.New(slog.DiscardHandler))
	h.progress(1, trainer.Spent{})
	for range b.N {
		h.next.Store(0)
		h.beat()
	}
}

// A write to a checkpoint counts as a heartbeat. A rank that is not watched makes no file.
func TestHeartbeatCountsASave(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "beat")
	local := filepath.Join(dir, "local")
	for _, of := range []struct {
		h  *heartbeat
		in string
	}{{newHeartbeat("", nil), dir}, {newHeartbeat(path, nil), dir}, {newHeartbeat(path, nil), local}} {
		h := of.h
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		fsys := vfs.Within(h.fs(), local) // as a node-local tier does
		if err := vfs.PrivateDir(fsys, local); err != nil {
			t.Fatal(err)
		}
		f, err := fsys.Create(filepath.Join(of.in, "shard"+filepath.Base(h.path)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("a file that was only opened counts")
		}
		if _, err := f.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); (err == nil) != (h.path != "") {
			t.Errorf("with %q after a write: %v", h.path, err)
		}
	}
	// and the rest of its file system is that of the operating system
	if err := vfs.PrivateDir(newHeartbeat("", nil).fs(), filepath.Join(dir, "private")); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(filepath.Join(dir, "private")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("a private folder: %v, %v", info, err)
	}
}

func TestFailedHeartbeatIsWarnedOfOnce(t *testing.T) {
	var log bytes.Buffer
	h := newHeartbeat(filepath.Join(t.TempDir(), "no", "folder"), slog.New(slog.NewTextHandler(&log, nil)))
	synctest.Test(t, func(t *testing.T) {
		for range 3 {
			h.began = time.Now().Add(-time.Hour)
			h.next.Store(0)
			h.beat()
		}
	})
	if got := strings.Count(log.String(), "may take this rank for hung"); got != 1 {
		t.Errorf("warned %d times: %s", got, log.String())
	}
}

// TestAwaitWarningKnowsEveryWayToAsk: a rank notices each way of asking it to stop, and takes nothing else for one.
func TestAwaitWarningKnowsEveryWayToAsk(t *testing.T) {
	type asker struct {
		cancel   func()
		signals  chan os.Signal
		stopFile atomic.Bool // the stop file exists
		over     chan struct{}
	}
	for name, tt := range map[string]struct {
		atTheStart bool // the rank is asked before it listens
		ask        func(a *asker)
		want       bool
		within     time.Duration
	}{
		"a signal that ends":    {ask: func(a *asker) { a.cancel() }, want: true},
		"the warning's signal":  {ask: func(a *asker) { a.signals <- syscall.SIGUSR2 }, want: true},
		"training is over":      {ask: func(a *asker) { close(a.over) }},
		"the stop file is made": {ask: func(a *asker) { a.stopFile.Store(true) }, want: true, within: stopFileLook},
		"there at the start":    {ask: func(a *asker) { a.stopFile.Store(true) }, want: true, atTheStart: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				a := &asker{cancel: cancel, signals: make(chan os.Signal, 1), over: make(chan struct{})}
				if tt.atTheStart {
					tt.ask(a)
				}
				answer := make(chan bool, 1)
				go func() { answer <- awaitWarning(ctx, a.signals, a.stopFile.Load, a.over) }()
				if !tt.atTheStart {
					synctest.Wait()
					if len(answer) > 0 {
						t.Fatal("it answers before anybody has asked")
					}
					tt.ask(a)
				}
				asked := time.Now()
				if got := <-answer; got != tt.want {
					t.Errorf("asked: %v, want %v", got, tt.want)
				}
				if took := time.Since(asked); took > tt.within {
					t.Errorf("it answers after %v, want %v at the most", took, tt.within)
				}
			})
		})
	}
}

// TestRanksDoNotLookTogether: ranks that begin at the same moment look for their stop files then. After that they look at different
// moments, each at least once per stopFileLook.
func TestRanksDoNotLookTogether(t *testing.T) {
	const ranks, together = 100, stopFileLook / 10
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*stopFileLook)
		defer cancel()
		begun := time.Now()
		looks := make([][]time.Duration, ranks)
		var waiting sync.WaitGroup
		for rank := range looks {
			waiting.Go(func() {
				awaitWarning(ctx, nil, func() bool {
					looks[rank] = append(looks[rank], time.Since(begun))
					return false
				}, nil)
			})
		}
		waiting.Wait()
		for look := 1; look <= 10; look++ {
			inOneMoment := map[time.Duration]int{}
			for rank, at := range looks {
				if look >= len(at) || at[look]-at[look-1] > stopFileLook || at[0] > 0 {
					t.Fatalf("rank %d looks at %v", rank, at)
				}
				inOneMoment[at[look]/together]++
			}
			for moment, n := range inOneMoment {
				if n > ranks/2 {
					t.Errorf("look %d: %d of %d ranks look within %v, after %v", look, n, ranks, together, moment*together)
				}
			}
		}
	})
}
