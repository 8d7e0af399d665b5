package launch

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/rundir"
)

// onFirst is a log that calls then at the first record with this message, in the goroutine that says it.
type onFirst struct {
	slog.Handler
	message string
	then    func()
}

func (h *onFirst) Enabled(context.Context, slog.Level) bool { return true }

func (h *onFirst) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &onFirst{h.Handler.WithAttrs(attrs), h.message, h.then}
}

func (h *onFirst) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message && h.then != nil {
		h.then()
		h.then = nil
	}
	return h.Handler.Handle(ctx, r)
}

// A run that is told to stop while its workers are being started starts no more of them.
func TestToldToStopWhileStarting(t *testing.T) {
	w := newWorld(t, []int{5}, "wait", "0")
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	c := &w.agents[0]
	c.Log = slog.New(&onFirst{c.Log.Handler(), "worker started", func() { cancel(SignalError{Sig: syscall.SIGTERM}) }})
	v := w.agree(w.runUntil(ctx))
	if v.Cause != "cancelled" || v.Signal != int(syscall.SIGTERM) {
		t.Errorf("verdict is %+v", v)
	}
	if n := strings.Count(w.log.String(), "worker started"); n != 1 {
		t.Errorf("%d workers were started, want the 1 before it was told to stop", n)
	}
}

// An agent that loses another while it starts its workers learns of that before the next one starts.
func TestLostWhileStarting(t *testing.T) {
	for name, lose := range map[string]func(s *supervisor){
		"agent 0": func(s *supervisor) { s.cfg.Index = 1; s.talk.lasts <- nil },
		"agent 1": func(s *supervisor) {
			g := newGuest("1", "")
			g.index, g.join.Host = 1, "n2"
			s.talk.lost <- g
		},
	} {
		w := newWorld(t, []int{1, 1}, "say", "x")
		c, err := w.agents[0].withDefaults()
		must(t, err)
		s := &supervisor{
			cfg: c, round: &round{m: &meeting{cfg: c}},
			talk: &talk{lasts: make(chan *last, 1), lost: make(chan *guest, 1), proposals: make(chan rundir.Verdict, 1)},
		}
		lose(s)
		s.glance(t.Context())
		s.early.Wait()
		if known := cmp.Or(s.outcome, s.mine); known == nil || known.Cause != causeNode || s.stop.stage != signalled {
			t.Errorf("without %s the outcome is %+v, and its workers are at stage %d", name, known, s.stop.stage)
		}
	}
}
