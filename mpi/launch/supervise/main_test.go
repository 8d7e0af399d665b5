package supervise

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"reflect"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/rendezvous"
	"ddpbatch/mpi/store"

	"go.uber.org/goleak"
)

// privateSwitch is the environment variable that makes this program the agent of TestPrivateFolderOfAnotherUser.
const privateSwitch = "SUPERVISE_TEST_PRIVATE"

func TestMain(m *testing.M) {
	if parent := os.Getenv(privateSwitch); parent != "" {
		usePrivate(parent)
		os.Exit(0)
	}
	syscall.Umask(0o022) // a folder of runs that the group may write to is refused
	goleak.VerifyTestMain(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newRunDir makes a run directory whose first attempt is claimed.
func newRunDir(t *testing.T) *rundir.Dir {
	t.Helper()
	dir, err := rundir.Create(rundir.CreateConfig{
		Parent: t.TempDir(), Binary: "/bin/sh", Now: time.Now(),
		Spec: rundir.Spec{Name: "test", Kind: "simulate", Job: json.RawMessage("{}")},
	})
	must(t, err)
	_, err = dir.ClaimAttempt()
	must(t, err)
	return dir
}

// complete fills in the fields that package launch fills in for its callers.
func complete(c Config) Config {
	if c.Grace == 0 {
		c.Grace = time.Minute
	}
	if c.TermGrace == 0 {
		c.TermGrace = c.Grace
	}
	if c.PeerWait == 0 {
		c.PeerWait = time.Second
	}
	if c.WarnSignal == 0 {
		c.WarnSignal = syscall.SIGUSR2
	}
	if c.Stdout == nil {
		c.Stdout, c.Stderr = io.Discard, io.Discard
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// one returns the configuration of an agent with one worker, and with a run directory if dir is not nil.
func one(dir *rundir.Dir) Config {
	c := Config{
		Identity: rendezvous.Identity{RunDir: dir}, World: rendezvous.World{Count: 1, Host: "n1", Nproc: 1},
		Workers: Workers{Command: []string{"x"}},
	}
	if dir != nil {
		c.Attempt = 1
	}
	return complete(c)
}

// met is a rendezvous in memory.
type met struct {
	store               store.Store
	addr, agent0, iface string
	chosen, stood       bool
	slept               bool // agent 0 stood still just now, shortly before it loses other agents
	silent              []string
	dismissed           []string
}

func (m *met) Index() int                           { return 0 }
func (m *met) Secret() (s auth.Secret)              { return s }
func (m *met) Store() store.Store                   { return m.store }
func (m *met) RoundStore(int) store.Store           { return m.store }
func (m *met) MasterAddr(*rendezvous.Layout) string { return rendezvous.Loopback }
func (m *met) WorkerAddr() string                   { return m.addr }
func (m *met) Agent0Addr() string                   { return m.agent0 }
func (m *met) WorkerInterface() (string, bool)      { return m.iface, m.chosen }
func (m *met) Dismiss(p *rendezvous.Participant, why string) {
	m.dismissed = append(m.dismissed, p.Host)
}
func (m *met) WhyLost(*rendezvous.Participant) string  { return "" }
func (m *met) StoodStill(*rendezvous.Layout) bool      { return m.stood || m.slept && len(m.dismissed) > 0 }
func (m *met) SilentHosts(*rendezvous.Layout) []string { return m.silent }
func (m *met) Agent0Lost() *rendezvous.LostError {
	return &rendezvous.LostError{Host: "n1", Why: "its connection ended"}
}

// agentOf returns an agent that has met the others through m. Its tasks do not run.
func agentOf(t *testing.T, c Config, m *met) *Agent {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	return &Agent{
		cfg: c, rdzv: m, reaper: &reaper{}, signals: make(chan warning, 1), warned: make(chan struct{}), drained: make(chan struct{}),
		ctx: ctx, cancel: cancel,
	}
}

func sameVerdict(a, b rundir.Verdict) bool {
	same := a.Time.Equal(b.Time)
	a.Time, b.Time = time.Time{}, time.Time{}
	return same && reflect.DeepEqual(a, b)
}
