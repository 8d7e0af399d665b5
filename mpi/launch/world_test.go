package launch

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/proc"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/rendezvous"

	"go.uber.org/goleak"
)

// world is a run of several agents, all in this process unless a test says
// otherwise, with a real store and real worker processes.
type world struct {
	t      testing.TB
	dir    *rundir.Dir
	folder string // of the workers' marks
	cookie string
	agents []AgentConfig
	out    safeBuffer // what all agents show
	log    safeBuffer // of agent 0
}

// result is how one agent ended.
type result struct {
	rundir.Verdict
	err  error
	took time.Duration
}

// newWorld makes one agent for each element of nproc, its number of workers. All workers run command.
func newWorld(t testing.TB, nproc []int, command ...string) *world {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	secret := auth.NewSecret()
	var cookie [8]byte
	rand.Read(cookie[:])
	w := &world{t: t, folder: t.TempDir(), cookie: hex.EncodeToString(cookie[:])}
	var attempt int
	w.dir, attempt = newRunDir(t)
	ports := append([]int{givenPort(t)}, Ports(w.cookie, 15)...) // agent 0 gets the first, whatever ports other tests hold
	log := slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for index, n := range nproc {
		c := AgentConfig{
			World:    World{Index: index, Count: len(nproc), Host: fmt.Sprintf("n%d", index+1), Nproc: n},
			Network:  Network{OneMachine: true, MasterAddr: rendezvous.Loopback, Ports: ports},
			Identity: Identity{Secret: secret, RunID: "test/" + w.cookie, Attempt: attempt, Version: "v1", JobID: "77", RunDir: w.dir},
			Workers: Workers{Command: append([]string{exe}, command...),
				Env: []string{"PATH=/usr/bin:/bin", workerSwitch + "=1", "GORACE=atexit_sleep_ms=0", workerFolder + "=" + w.folder,
					workerCookie + "=" + w.cookie}},
			Limits:    Limits{Grace: bound},
			Admission: Admission{JoinTimeout: testkit.Patience},
			Streams:   Streams{Stdout: &w.out, Stderr: &w.out},
		}
		if index == 0 {
			c.Log = log
		}
		w.agents = append(w.agents, c)
	}
	t.Cleanup(w.noSurvivors)
	return w
}

// newRunDir makes a run directory, and claims its first attempt.
func newRunDir(t testing.TB) (dir *rundir.Dir, attempt int) {
	t.Helper()
	dir, err := rundir.Create(rundir.CreateConfig{
		Parent: t.TempDir(), Binary: "/bin/sh", Now: time.Now(),
		Spec: rundir.Spec{Name: "test", Kind: "simulate", Job: json.RawMessage("{}")},
	})
	must(t, err)
	attempt, err = dir.ClaimAttempt()
	must(t, err)
	return dir, attempt
}

// elastic lets the run go on with minCount agents. The run begins with all agents that come, however long they take.
func (w *world) elastic(minCount, maxRestarts int) {
	for i := range w.agents {
		w.agents[i].MinCount, w.agents[i].LastCall, w.agents[i].Policy.MaxRestarts = minCount, bound, maxRestarts
	}
}

// beginShort calls elastic, and lets the run begin without agents that do not come at once.
func (w *world) beginShort(minCount, maxRestarts int) {
	w.elastic(minCount, maxRestarts)
	w.agents[0].LastCall = 100 * time.Millisecond
}

// begin runs one agent in this process, and returns a channel for its result.
func (w *world) begin(ctx context.Context, index int) <-chan result {
	ended := make(chan result, 1)
	ctx, cancel := context.WithTimeout(ctx, bound)
	go func() {
		defer cancel()
		start := time.Now()
		v, err := Run(ctx, w.agents[index])
		ended <- result{v, err, time.Since(start)}
	}()
	return ended
}

// bound ends a run that should have ended long before.
const bound = 3 * testkit.Patience

// run runs all agents to their ends.
func (w *world) run() []result { return w.runUntil(context.Background()) }

func (w *world) runUntil(ctx context.Context) []result {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	results := make([]result, len(w.agents))
	var wg sync.WaitGroup
	for i, c := range w.agents {
		wg.Go(func() {
			begin := time.Now()
			v, err := Run(ctx, c)
			results[i] = result{v, err, time.Since(begin)}
		})
	}
	wg.Wait()
	return results
}

// agree checks that all agents returned the same verdict and no error, and that this verdict is on disk. It returns the verdict.
func (w *world) agree(results []result) rundir.Verdict {
	w.t.Helper()
	for i, r := range results {
		if r.err != nil {
			w.t.Errorf("agent %d: %v", i, r.err)
		}
		if !sameVerdict(r.Verdict, results[0].Verdict) {
			w.t.Errorf("agent %d says %+v, agent 0 %+v", i, r.Verdict, results[0].Verdict)
		}
	}
	disk, err := w.dir.Verdict(results[0].Attempt)
	if err != nil || !sameVerdict(disk, results[0].Verdict) {
		w.t.Errorf("on disk is %+v, %v; returned was %+v", disk, err, results[0].Verdict)
	}
	return results[0].Verdict
}

func sameVerdict(a, b rundir.Verdict) bool {
	same := a.Time.Equal(b.Time)
	a.Time, b.Time = time.Time{}, time.Time{}
	return same && reflect.DeepEqual(a, b)
}

// logOf returns what one rank wrote to a stream in the first round.
func (w *world) logOf(host string, rank int, stream string) string {
	return w.logAt(1, host, rank, stream)
}

func (w *world) logAt(attempt int, host string, rank int, stream string) string {
	w.t.Helper()
	text, err := os.ReadFile(w.dir.LogPath(attempt, host, rank, stream))
	must(w.t, err)
	return string(text)
}

// environOf reads what an "environ" worker wrote.
func (w *world) environOf(host string, rank int) map[string]string {
	w.t.Helper()
	env := map[string]string{}
	for line := range strings.Lines(w.logOf(host, rank, "out")) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if _, twice := env[name]; twice {
			w.t.Errorf("rank %d has %s twice", rank, name)
		}
		env[name] = value
	}
	return env
}

// awaitMarks waits until workers have left these marks.
func (w *world) awaitMarks(names ...string) {
	w.t.Helper()
	for _, name := range names {
		testkit.Eventually(w.t, "mark "+name, func() bool {
			_, err := os.Stat(filepath.Join(w.folder, name))
			return err == nil
		})
	}
}

// noSurvivors waits until /proc has no more processes of this test.
func (w *world) noSurvivors() {
	w.t.Helper()
	testkit.Eventually(w.t, "the end of all processes", func() bool { return len(w.processes()) == 0 })
}

func (w *world) processes() []string {
	var list []string
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	must(w.t, err)
	for _, path := range environs {
		env, err := os.ReadFile(path)
		if err == nil && bytes.Contains(env, []byte(workerCookie+"="+w.cookie)) {
			list = append(list, filepath.Base(filepath.Dir(path)))
		}
	}
	return list
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// safeBuffer is a bytes.Buffer for several goroutines, which remembers each Write.
type safeBuffer struct {
	mu     sync.Mutex
	writes []string
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes = append(b.writes, string(p))
	return len(p), nil
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.writes, "")
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == proc.GuardCommand {
		if _, err := proc.ServeGuard(context.Background(), os.Args[2:], os.Stdin); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(workerSwitch) != "" {
		workerMain() // this process is a worker, or an agent, of a test
	}
	syscall.Umask(0o022) // a folder of runs that the group may write to is refused
	goleak.VerifyTestMain(m)
}

// Reasons that messages give for a lost agent.
const (
	connectionEnded = "its connection ended"
	silence         = "it was silent for 10s"
)

// rejectWait is how long an agent waits for others that have not yet received the reason why a run does not begin.
const rejectWait = 10 * time.Second

// privatePath is the prefix of the paths of agents' private folders.
const privatePath = "/dev/shm/ddpbatch-agent-"

func joinPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// listenFirst listens on the first free port.
func listenFirst(ports []int) (l net.Listener, err error) {
	for _, port := range ports {
		if l, err = net.Listen("tcp", joinPort(rendezvous.Loopback, port)); err == nil {
			return l, nil
		}
	}
	return nil, err
}

func addrsOf(list ...string) (addrs []netip.Addr) {
	for _, s := range list {
		addrs = append(addrs, netip.MustParseAddr(s))
	}
	return addrs
}

// offer is what agent 0 publishes through Exchange.
type offer struct {
	Run    string       `json:"run"`
	Port   int          `json:"port,omitempty"`
	Addrs  []netip.Addr `json:"addrs,omitempty"`
	Secret string       `json:"secret,omitempty"`
}

func touch(path string) error { return os.WriteFile(path, nil, 0o600) }
