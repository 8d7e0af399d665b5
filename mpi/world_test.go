package mpi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
	"ddpbatch/internal/testkit/ucxhost"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"
	"ddpbatch/mpi/transport/ucx"

	"go.uber.org/goleak"
)

// The variables that make the test binary run as one rank of a scenario.
const (
	scenarioVariable  = "MPI_TEST_SCENARIO"
	transportVariable = "MPI_TEST_TRANSPORT"
	timeoutVariable   = "MPI_TEST_TIMEOUT"
)

// scenarios are what a rank process can do after it has met the others.
var scenarios = map[string]func(ctx context.Context, c *Comm) error{
	"conform":  conformProcess,
	"handmade": handmadeProcess,
	"die":      dieProcess,
	"stop":     stopProcess,
	"start":    startProcess,
}

func TestMain(m *testing.M) {
	if name := os.Getenv(scenarioVariable); name != "" {
		if err := play(scenarios[name]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ucxhost.SetUp()
	goleak.VerifyTestMain(m)
}

func play(scenario func(ctx context.Context, c *Comm) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*testkit.Patience)
	defer cancel()
	cfg := DefaultConfig()
	cfg.Transport = os.Getenv(transportVariable)
	var err error
	if cfg.Timeout, err = time.ParseDuration(os.Getenv(timeoutVariable)); err != nil {
		return err
	}
	c, err := InitEnv(ctx, os.LookupEnv, cfg, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	return scenario(ctx, c)
}

// transports are what tests use: a network within this process, loopback, shared memory, and the last two together, with ranks that take
// themselves for ranks on several machines. DDPBATCH_TEST_TRANSPORTS names others, such as ucx, separated by commas.
var transports = func() []string {
	if names := os.Getenv("DDPBATCH_TEST_TRANSPORTS"); names != "" {
		return strings.Split(names, ",")
	}
	return []string{"local", "tcp", "shm", "machines"}
}()

// otherTransports returns the transports between processes.
func otherTransports() []string {
	return slices.DeleteFunc(slices.Clone(transports), func(over string) bool { return over == "local" })
}

// withUCX adds UCX's TCP on loopback, for tests that use it in every run. With --long, scripts/test runs all of the tests once over UCX.
func withUCX(transports []string) []string {
	if slices.Contains(transports, "ucx") {
		return transports
	}
	return append(slices.Clone(transports), "ucx")
}

// needTransport skips the test if this machine lacks the transport.
func needTransport(t testing.TB, over string) {
	t.Helper()
	if over == "ucx" {
		_, _, err := ucx.Library()
		ucxhost.Need(t, err)
	}
}

// newWorldOn is newWorld on one of transports.
func newWorldOn(t testing.TB, over string, size int, change func(*InitConfig)) []*Comm {
	t.Helper()
	needTransport(t, over)
	return formed(t, func() ([]*Comm, error) { return initOn(t.Context(), over, size, change) })
}

// newImpatient is newWorldOn with a time-out that the test waits for. The ranks must also meet within it, so it is longer than requested on
// a busy machine. The time-out in force is returned.
func newImpatient(t testing.TB, over string, size int, timeout time.Duration) ([]*Comm, time.Duration) {
	t.Helper()
	for ; timeout < testkit.Patience; timeout *= 2 {
		comms, err := initOn(t.Context(), over, size, func(cfg *InitConfig) { cfg.Config.Timeout = timeout })
		if err == nil {
			closeAtEnd(t, comms)
			return comms, timeout
		}
		t.Log(err)
	}
	t.Fatal("the ranks do not meet")
	return nil, 0
}

// ending is for tests that last until their context ends, and in which some ranks must meet before. It runs play again with more time if
// play fails, because a busy machine may be too slow.
func ending(t *testing.T, limit time.Duration, play func(ctx context.Context) error) {
	t.Helper()
	for ; ; limit *= 4 {
		last := limit >= testkit.Patience
		ctx, cancel := context.WithTimeout(t.Context(), min(limit, testkit.Patience))
		err := play(ctx)
		cancel()
		if err == nil {
			return
		}
		if last {
			t.Error(err)
			return
		}
		t.Logf("within %v: %v", limit, err)
	}
}

// formed returns the ranks that form makes, and closes them after the test.
func formed(t testing.TB, form func() ([]*Comm, error)) []*Comm {
	t.Helper()
	comms, err := form()
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, comms)
	return comms
}

// initOn connects ranks over one of transports.
func initOn(ctx context.Context, over string, size int, change func(*InitConfig)) ([]*Comm, error) {
	if over == "local" {
		return initIn(ctx, transport.NewNetwork(size), change)
	}
	return initAll(ctx, size, func(cfg *InitConfig) {
		if cfg.Config.Transport = over; over == "machines" {
			cfg.Config.Transport = "auto"
			cfg.Store = machines{cfg.Store, cfg.Rank, widthOf(size)}
		}
		if change != nil {
			change(cfg)
		}
	})
}

// newLocal is newWorld on a network within this process. The configuration is the same for all ranks.
func newLocal(t testing.TB, network *transport.Network, change func(*InitConfig)) []*Comm {
	t.Helper()
	return formed(t, func() ([]*Comm, error) { return initIn(t.Context(), network, change) })
}

func initIn(ctx context.Context, network *transport.Network, change func(*InitConfig)) ([]*Comm, error) {
	cfg := testConfig(nil, 0, network.Size())
	if change != nil {
		change(&cfg)
	}
	return InitLocal(ctx, network, cfg)
}

// sizesOn returns those of sizes to test on a transport. The network within this process costs little and gets all of them. The others get
// half of them, a different half in each run.
func sizesOn(over string, sizes []int) []int {
	if over == "local" || *conformRounds > 1 {
		return sizes
	}
	some := slices.Clone(sizes)
	rand.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	some = some[:(len(some)+1)/2]
	slices.Sort(some)
	return some
}

// sampleOf returns those of sizes to test on a transport if a test takes long. The network within this process gets all of them, or half
// with the race detector, and the others get one.
func sampleOf(over string, sizes []int) []int {
	switch {
	case *conformRounds > 1 || over == "local" && !raceEnabled:
		return sizes
	case over == "local":
		return sizesOn("half", sizes)
	}
	i := rand.IntN(len(sizes))
	return sizes[i : i+1 : i+1] // appending must not change them
}

// someTransports returns the network within this process and one other, drawn at random. It is for tests that take long and hardly depend
// on the transport.
func someTransports() []string {
	if *conformRounds > 1 {
		return transports
	}
	others := otherTransports()
	return []string{"local", others[rand.IntN(len(others))]}
}

// everywhere runs f as every rank of worlds of some of the given sizes on all transports.
func everywhere(t *testing.T, sizes []int, f func(ctx context.Context, c *Comm) error) {
	t.Helper()
	for _, over := range transports {
		for _, size := range sizesOn(over, sizes) {
			t.Run(over+"/"+rankName(size), func(t *testing.T) {
				w := newWorldOn(t, over, size, nil)
				must(t, testkit.Each(size, func(rank int) error { return f(t.Context(), w[rank]) }))
			})
		}
	}
}

// closeAtEnd closes the Comms after the test, and has the test fail if one cannot be closed.
func closeAtEnd(t testing.TB, comms []*Comm) {
	t.Cleanup(func() {
		if err := closeAll(comms); err != nil {
			t.Error(err)
		}
	})
}

// closeAll closes all Comms at once, as ranks do.
func closeAll(comms []*Comm) error {
	return errors.Join(testkit.Each(len(comms), func(rank int) error { return comms[rank].Close() })...)
}

var testSecret = auth.Secret{1, 2, 3}

// testConfig returns the configuration of one rank of a world on this machine.
func testConfig(s store.Store, rank, size int) InitConfig {
	cfg := DefaultConfig()
	cfg.Timeout = testkit.Patience
	return InitConfig{
		Rank: rank, Size: size, Store: s, Listen: "127.0.0.1", Run: "test", Attempt: 1, Secret: testSecret, Config: cfg,
		Log: slog.New(slog.DiscardHandler),
	}
}

// newWorld returns size connected ranks; change, if not nil, adjusts the configuration of each.
func newWorld(t testing.TB, size int, change func(*InitConfig)) []*Comm {
	t.Helper()
	return formed(t, func() ([]*Comm, error) { return initAll(t.Context(), size, change) })
}

// initAll connects ranks. If some of them fail, it closes the Comms of the others.
func initAll(ctx context.Context, size int, change func(*InitConfig)) ([]*Comm, error) {
	ctx, cancel := context.WithTimeout(ctx, testkit.Patience)
	defer cancel()
	s := store.NewMemory()
	defer s.Close()
	comms := make([]*Comm, size)
	err := errors.Join(testkit.Each(size, func(rank int) (err error) {
		cfg := testConfig(s, rank, size)
		if change != nil {
			change(&cfg)
		}
		comms[rank], err = Init(ctx, cfg)
		return err
	})...)
	if err == nil {
		return comms, nil
	}
	for _, c := range comms {
		if c != nil {
			c.Close()
		}
	}
	return nil, err
}

// must fails the test if some rank failed.
func must(t testing.TB, errs []error) {
	t.Helper()
	for rank, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

func rankName(size int) string { return fmt.Sprintf("%d_ranks", size) }

// rankProcess is a rank in a process of its own, with what it printed.
type rankProcess struct {
	cmd         *exec.Cmd
	out, errOut bytes.Buffer
	err         error // how the process ended
}

// startRanks starts the processes of a scenario.
func startRanks(t *testing.T, scenario, over string, size int, timeout time.Duration) []*rankProcess {
	t.Helper()
	needTransport(t, over)
	port := testkit.FreePort(t, "127.0.0.1")
	ranks := make([]*rankProcess, size)
	for rank := range ranks {
		p := &rankProcess{cmd: exec.Command(os.Args[0])}
		p.cmd.Env = append(os.Environ(), scenarioVariable+"="+scenario, transportVariable+"="+over, timeoutVariable+"="+timeout.String(),
			"RANK="+strconv.Itoa(rank), "WORLD_SIZE="+strconv.Itoa(size), "MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port,
			"DDPBATCH_SECRET="+secretHex)
		p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.errOut
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.cmd.Process.Kill() })
		ranks[rank] = p
	}
	return ranks
}

// wait waits until the given processes have ended.
func wait(t *testing.T, ranks ...*rankProcess) {
	t.Helper()
	testkit.Within(t, 4*testkit.Patience, func() {
		testkit.Each(len(ranks), func(i int) error {
			ranks[i].err = ranks[i].cmd.Wait()
			return nil
		})
	})
}

// succeeded fails the test if a process has ended with an error.
func succeeded(t *testing.T, ranks []*rankProcess) {
	t.Helper()
	for rank, p := range ranks {
		if p.err != nil {
			t.Errorf("rank %d: %v; printed %q, %q", rank, p.err, p.out.String(), p.errOut.String())
		}
	}
	if t.Failed() {
		t.FailNow()
	}
}

// realTransports are those that separate processes can use.
var realTransports = slices.DeleteFunc(otherTransports(), func(over string) bool { return over == "machines" })

// conformProcess is a rank of TestConformanceOfEveryCollective and TestDeterminismInEveryWorld in its own process.
func conformProcess(ctx context.Context, c *Comm) error {
	seed := []uint64{rand.Uint64()}
	if err := Broadcast(ctx, c, seed, 0); err != nil {
		return err
	}
	c.core.world.config.Deterministic = false
	if err := conform(ctx, c, seed[0], 2); err != nil {
		return fmt.Errorf("seed %d: %w", seed[0], err)
	}
	c.core.world.config.Deterministic = true
	if err := determined(ctx, c, kindFloat32, seed[0]); err != nil {
		return fmt.Errorf("seed %d: %w", seed[0], err)
	}
	return nil
}

func TestProcessesPassTheScenarios(t *testing.T) {
	sizes := []int{2, 3, 4, 5, 8}
	if raceEnabled { // it sees no race between processes, and makes a world of eight take minutes on two cores
		sizes = sizes[:3]
	}
	for _, over := range realTransports {
		for _, scenario := range []string{"conform", "handmade"} {
			for _, size := range sampleOf(over, sizes) {
				t.Run(over+"/"+scenario+"/"+rankName(size), func(t *testing.T) {
					ranks := startRanks(t, scenario, over, size, testkit.Patience)
					wait(t, ranks...)
					succeeded(t, ranks)
				})
			}
		}
	}
}

// soon is how long one of the misuses may stay unnoticed.
const soon = time.Second

// again is the result of an inconclusive try.
const again = time.Duration(-1)

// promptly is testkit.Promptly for calls that must end soon. An inconclusive try is repeated.
func promptly(t *testing.T, play func() (took time.Duration)) {
	t.Helper()
	testkit.Promptly(t, soon, func() time.Duration {
		for range 100 {
			if took := play(); took != again || t.Failed() {
				return took
			}
		}
		t.Error("100 tries were inconclusive: the ranks do not answer")
		return 0
	})
}

// starved reports whether an error says that a rank does not answer. Here that rank is a goroutine, which may not have run in time on a
// busy machine, so the try is inconclusive.
func starved(errs ...error) bool {
	return slices.ContainsFunc(errs, func(err error) bool { return err != nil && strings.Contains(err.Error(), "it does not answer") })
}

// stopwatch measures the time since the last rank made its call. The zero stopwatch is ready.
type stopwatch struct {
	mu   sync.Mutex
	last time.Time
}

// called notes that a rank is about to make its call.
func (s *stopwatch) called() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
}

// sinceLast returns the time since the last rank called called.
func (s *stopwatch) sinceLast() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Since(s.last)
}
