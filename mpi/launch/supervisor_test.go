package launch

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
)

// onFirst is a log that calls then at the first record with this message, in the goroutine that logs it.
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

// A run that gets a signal while it starts its workers does not start the remaining ones.
func TestSignalWhileStartingStartsNoMoreWorkers(t *testing.T) {
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

// If a rank that only lost its peer ends first, the verdict still blames the peer, whose exception closed its connections before it ended.
// The verdict has the peer's own exit code and words.
func TestTheRankThatWasLostIsTheCause(t *testing.T) {
	for name, nproc := range map[string][]int{"on one node": {2}, "on two nodes": {1, 1}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nproc, "")
			script := fmt.Sprintf(
				`if [ $RANK = 0 ]; then while [ ! -e "$%[1]s/1" ]; do sleep 0.02; done; while kill -0 $(cat "$%[1]s/1") 2>/dev/null; do sleep 0.02; done
				echo 'ValueError: the data is bad' >&2; exit 7; fi
				echo $$ > "$%[1]s/new"; mv "$%[1]s/new" "$%[1]s/1"; echo 'RuntimeError: Connection closed by peer [127.0.0.1]:4711' >&2; exit 1`, workerFolder)
			for i := range w.agents {
				w.agents[i].Command = []string{"/bin/sh", "-c", script}
				w.agents[i].PeerWait = testkit.Patience // rank 0 may find late that rank 1 has ended
			}
			v := w.agree(w.run())
			if v.FirstRank != 0 || v.Exit != 7 || v.Host != "n1" || v.Cause != "crash" ||
				!strings.Contains(v.Message, w.dir.LogPath(1, "n1", 0, "err")) {
				t.Errorf("verdict is %+v", v)
			}
			if len(v.Ranks) != 2 || v.Ranks[0].Rank != 0 || v.Ranks[0].Followed || !v.Ranks[1].Followed {
				t.Errorf("ranks ended as %+v", v.Ranks)
			}
			if !strings.Contains(v.Report, "ValueError: the data is bad") {
				t.Errorf("report is\n%s", v.Report)
			}
		})
	}
}

// A rank that lost a peer is the one to blame if that peer does not report a failure.
func TestLostPeerThatSaysNothing(t *testing.T) {
	w := newWorld(t, []int{2}, "")
	w.agents[0].Command = []string{"/bin/sh", "-c", `[ $RANK = 0 ] && exec sleep 100; echo 'Connection reset by peer' >&2; exit 3`}
	v := w.agree(w.run())
	if v.FirstRank != 1 || v.Exit != 3 {
		t.Errorf("verdict is %+v", v)
	}
	const want = "it only lost a peer, and rank 0 reported no error: "
	if !strings.HasPrefix(v.Advice, want) || !strings.Contains(v.Report, want) {
		t.Errorf("advice is %q, and the report\n%s", v.Advice, v.Report)
	}
	w.noneWasKilled(v)
}
