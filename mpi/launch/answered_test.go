package launch

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit"
)

// A file system that hangs keeps no agent: it is waited for, and then not any longer.
func TestFileSystemThatDoesNotAnswer(t *testing.T) {
	for name, wait := range map[string]func(s *supervisor) error{
		"the stop file": func(s *supervisor) error { s.awaitEarly(); return errors.New("has not answered") },
		"the verdict":   func(s *supervisor) error { return s.record(s.cfg.doneOutcome(1)) },
		"reading, to a result": func(s *supervisor) error {
			_, err := answered("read", func() (int, error) { s.early.Wait(); return 1, nil })
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := AgentConfig{Count: 1, Host: "n1", Nproc: 1, Command: []string{"x"}}.withDefaults()
				must(t, err)
				s := &supervisor{cfg: c}
				hung := make(chan struct{})
				s.early.Go(func() { <-hung })
				begin := time.Now()
				err = wait(s)
				if err == nil || !strings.Contains(err.Error(), "has not answered") || time.Since(begin) != answerLimit {
					t.Errorf("waited %v: %v", time.Since(begin), err)
				}
				close(hung)
			})
		})
	}
}

// An agent whose stop file cannot be written for long reports at once how its workers ended: agent 0 would take its node for lost.
func TestReportDoesNotWaitForTheStopFile(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "wait", "75")
	warn := make(chan struct{})
	held := heldLog{what: "stop file cannot be made", came: make(chan struct{}), goOn: make(chan struct{})}
	w.agents[1].Warn, w.agents[1].Log = warn, slog.New(held)
	w.agents[1].StopFile = filepath.Join(t.TempDir(), "missing", "stop") // its touch fails, and takes as long as the log wants
	first, other := w.begin(t.Context(), 0), w.begin(t.Context(), 1)
	w.awaitMarks("0", "1")
	close(warn)
	<-held.came
	var results []result
	select {
	case r := <-first:
		results = append(results, r)
	case <-time.After(testkit.Patience): // less than answerLimit
		t.Error("agent 0 waits for agent 1's stop file")
	}
	close(held.goOn)
	if len(results) == 0 {
		results = append(results, <-first)
	}
	if v := w.agree(append(results, <-other)); v.Cause != "stopped" || v.Exit != 75 || !v.Saved {
		t.Errorf("verdict is %+v", v)
	}
}

// heldLog keeps whoever logs what it is told of.
type heldLog struct {
	what       string
	came, goOn chan struct{}
}

func (h heldLog) Enabled(context.Context, slog.Level) bool { return true }
func (h heldLog) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h heldLog) WithGroup(string) slog.Handler            { return h }

func (h heldLog) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, h.what) {
		close(h.came)
		<-h.goOn
	}
	return nil
}

func TestAnsweredIsWhatWasDone(t *testing.T) {
	fault := errors.New("a fault")
	if v, err := answered("x", func() (int, error) { return 7, fault }); v != 7 || err != fault {
		t.Errorf("%d, %v", v, err)
	}
}

// A look for the stop file that takes for ever is the last one, and does not keep the round.
func TestStopFileOnAFileSystemThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hung := make(chan struct{})
		var looks atomic.Int32
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if path, found := awaitOne(ctx, nil, []string{"stop"}, func(string) bool { looks.Add(1); <-hung; return true }); found || looks.Load() != 1 {
			t.Errorf("%q was found, after %d looks", path, looks.Load())
		}
		close(hung)
		synctest.Wait()
		if path, found := awaitOne(t.Context(), nil, []string{"", "a", "b"}, func(path string) bool { return looks.Add(1) > 8 && path == "b" }); !found || path != "b" {
			t.Errorf("%q was found: %t", path, found)
		}
	})
}

// Workers that have no handler for the warning are looked at ever less often.
func TestWarnsAgainEverLessOften(t *testing.T) {
	pause, all := warnAgain, time.Duration(0)
	looks := 0
	for ; all < time.Hour; looks++ {
		all += pause
		pause = lessOften(pause)
	}
	if looks > 300 || pause != warnSeldom {
		t.Errorf("%d looks in an hour, the last after %v", looks, pause)
	}
}
