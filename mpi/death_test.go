package mpi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/store"
	"ddpbatch/mpi/transport"
)

// deaths has a rank die in the middle of each of everyCall, one after another. The others must get an error that names it, shrink the
// group, and go on. Groups without that rank must go on, too. die ends the caller, and notified records that this rank knows about the
// death. Both get the number of earlier deaths.
func deaths(ctx context.Context, c *Comm, die, notified func(before int)) error {
	for i, tt := range everyCall {
		victim := (5*i + 3) % c.Size()
		pair, err := c.Split(ctx, c.Rank()/2, 0)
		if err != nil {
			return fmt.Errorf("after %d deaths: %w", i, err)
		}
		// All ranks have made their pair before the first leaves the barrier.
		if err = c.Barrier(ctx); err == nil {
			if c.Rank() == victim {
				time.AfterFunc(time.Duration(rand.IntN(3000))*time.Microsecond, func() { die(i) })
			}
			err = untilBroken(ctx, c, tt)
		}
		if c.Rank() == victim {
			return nil
		}
		notified(i)
		if err := blames(err, victim); err != nil {
			return fmt.Errorf("%s: %w", tt.name, err)
		}
		if err := AllReduce(ctx, pair, []int64{1}, Sum); (err != nil) != (c.Rank()/2 == victim/2) {
			return fmt.Errorf("%s: a pair of ranks, which are %v of the world, when rank %d died: %w", tt.name, pair.Ranks(),
				c.Ranks()[victim], err)
		}
		if err := pair.Close(); err != nil {
			return err
		}
		next, err := c.Shrink(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", tt.name, err)
		}
		if err := goesOn(ctx, next, slices.Delete(c.Ranks(), victim, victim+1)); err != nil {
			return fmt.Errorf("%s: %w", tt.name, err)
		}
		c = next
	}
	return nil
}

// blames returns an error unless err says that the rank victim was lost.
func blames(err error, victim int) error {
	var peer *PeerError
	var abort *AbortError
	right := errors.As(err, &peer) && peer.Rank == victim || errors.As(err, &abort) && abort.Rank == victim
	if !errors.Is(err, ErrLost) || !right || !strings.Contains(err.Error(), fmt.Sprintf("rank %d: connection lost", victim)) {
		return fmt.Errorf("rank %d has died, and the error is: %w", victim, err)
	}
	return nil
}

// goesOn returns an error unless c consists of these ranks of the world and works.
func goesOn(ctx context.Context, c *Comm, ranks []int) error {
	if !slices.Equal(c.Ranks(), ranks) {
		return fmt.Errorf("the survivors are ranks %v of the world, want %v", c.Ranks(), ranks)
	}
	all := make([]int64, c.Size())
	if err := AllGather(ctx, c, all, []int64{int64(c.Rank())}); err != nil {
		return fmt.Errorf("the survivors: %w", err)
	}
	one := []int64{1}
	if err := AllReduce(ctx, c, one, Sum); err != nil {
		return fmt.Errorf("the survivors: %w", err)
	}
	if int(one[0]) != len(ranks) || int(all[len(ranks)-1]) != len(ranks)-1 {
		return fmt.Errorf("the survivors counted %d of them, and numbered them %v", one[0], all)
	}
	return nil
}

func TestDeathsWithinAProcessAreNoticed(t *testing.T) {
	size := len(everyCall) + 2
	network := transport.NewNetwork(size)
	w := newLocal(t, network, nil)
	var died, notified [64]atomic.Int64 // microseconds
	begin := time.Now()
	for rank, err := range testkit.Each(size, func(rank int) error {
		return deaths(t.Context(), w[rank],
			func(before int) {
				died[before].Store(time.Since(begin).Microseconds())
				network.Kill(rank)
			},
			func(before int) { notified[before].Store(time.Since(begin).Microseconds()) }) // the time of the last rank remains
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
	var times []time.Duration
	for i := range everyCall {
		times = append(times, time.Duration(notified[i].Load()-died[i].Load())*time.Microsecond)
	}
	notifiedSoon(t, times)
}

// notifiedSoon logs how soon the last survivor was notified of the death in each of everyCall. If testkit.IsLong, at least a quarter of the
// notifications must have come sooner than by the check that a waiting rank makes every second. Other work on the machine may delay the
// rest.
func notifiedSoon(t *testing.T, times []time.Duration) {
	t.Helper()
	for i, took := range times {
		t.Logf("%s: the last rank was notified %v after the death", everyCall[i].name, took)
	}
	slices.Sort(times)
	if quarter := times[len(times)/4]; testkit.IsLong() && quarter > 500*time.Millisecond {
		t.Errorf("of %d deaths three quarters took more than %v", len(times), quarter)
	}
}

// dieProcess is a rank of deaths in a process of its own. It prints when it dies or is notified. Every other death is by signal.
func dieProcess(ctx context.Context, c *Comm) error {
	die := func(before int) {
		fmt.Println("died", before, time.Now().UnixMicro())
		if before%2 == 0 {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
			return
		}
		os.Exit(7)
	}
	return deaths(ctx, c, die, func(before int) { fmt.Println("told", before, time.Now().UnixMicro()) })
}

// If a process dies in the middle of a collective, the others get an error at once that names the right rank.
func TestDeathsOfProcessesAreNoticed(t *testing.T) {
	for _, over := range withUCX(realTransports) {
		t.Run(over, func(t *testing.T) {
			size := len(everyCall) + 2
			ranks := startRanks(t, "die", over, size, time.Minute)
			wait(t, ranks...)
			var died, notified [64]int64
			survivors := 0
			for rank, p := range ranks {
				if code := p.cmd.ProcessState.ExitCode(); code == 0 {
					survivors++
				} else if exit := (*exec.ExitError)(nil); !errors.As(p.err, &exit) || p.errOut.Len() > 0 || code != -1 && code != 7 {
					t.Errorf("rank %d: %v; said %q", rank, p.err, p.errOut.String())
				}
				for _, text := range strings.Split(strings.TrimSpace(p.out.String()), "\n") {
					var what string
					var i int
					var at int64
					if _, err := fmt.Sscan(text, &what, &i, &at); err != nil {
						t.Fatalf("rank %d printed %q", rank, text)
					}
					if what == "died" {
						died[i] = at
					} else {
						notified[i] = max(notified[i], at)
					}
				}
			}
			if survivors != size-len(everyCall) {
				t.Errorf("%d ranks are left of %d, after %d deaths", survivors, size, len(everyCall))
			}
			var times []time.Duration
			for i := range everyCall {
				times = append(times, time.Duration(notified[i]-died[i])*time.Microsecond)
			}
			notifiedSoon(t, times)
		})
	}
}

// stopped is the rank that is stopped.
const stopped = 1

// stopProcess is a rank of a world of three. The rank stopped is stopped in the middle of everything that ranks can do together, with each
// call in a group of its own. When that process resumes later, the others have gone on without it.
func stopProcess(ctx context.Context, c *Comm) error {
	groups := []*Comm{c}
	for len(groups) < len(everyCall) {
		g, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		groups = append(groups, g)
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	if c.Rank() == stopped {
		time.AfterFunc(10*time.Millisecond, func() { syscall.Kill(os.Getpid(), syscall.SIGSTOP) })
	}
	errs := testkit.Each(len(groups), func(i int) error { return untilBroken(ctx, groups[i], everyCall[i]) })
	if c.Rank() == stopped {
		fmt.Println("stopped rank:", errors.Join(errs...))
		return nil
	}
	want := fmt.Sprintf("rank %d: no progress for %v: it does not answer: it is stopped", stopped, c.core.world.config.Timeout)
	for i, err := range errs {
		// In the ring of messages, a rank may name the rank that waits for the stopped one.
		named := strings.Contains(err.Error(), want) || everyCall[i].name == "messages" && c.Rank() != stopped+1
		if !errors.Is(err, ErrTimeout) || !named {
			return fmt.Errorf("%s: want %q: %w", everyCall[i].name, want, err)
		}
	}
	next, err := c.Shrink(ctx)
	if err != nil {
		return err
	}
	return goesOn(ctx, next, []int{0, 2})
}

// A stopped process is named after the time-out, and the others can go on without it.
func TestStoppedProcessIsNamedAfterTheTimeout(t *testing.T) {
	for _, over := range realTransports {
		t.Run(over, func(t *testing.T) {
			t.Parallel() // it mostly waits
			// The processes must also start and meet within the time-out, and answer each other.
			// On a busy machine, they get more time.
			timeout := 2 * time.Second
			ranks, took := playStop(t, over, timeout)
			for ; (ranks[0].err != nil || ranks[2].err != nil) && 4*timeout < testkit.Patience; ranks, took = playStop(t, over, timeout) {
				t.Logf("within %v: %q, %q", timeout, ranks[0].errOut.String(), ranks[2].errOut.String())
				timeout *= 4
			}
			succeeded(t, ranks)
			if took < timeout || took > 2*testkit.Patience {
				t.Errorf("took %v", took)
			}
			if err := ranks[stopped].cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			wait(t, ranks[stopped])
			if text := ranks[stopped].out.String(); ranks[stopped].err != nil || !strings.Contains(text, "rank ") {
				t.Errorf("the rank that was stopped: %v; printed %q", ranks[stopped].err, text)
			}
		})
	}
}

// playStop starts the processes, and returns when those that are not stopped have ended.
func playStop(t *testing.T, over string, timeout time.Duration) (ranks []*rankProcess, took time.Duration) {
	t.Helper()
	ranks = startRanks(t, "stop", over, 3, timeout)
	begin := time.Now()
	wait(t, ranks[0], ranks[2])
	return ranks, time.Since(begin)
}

// If all connections of a rank are cut in the middle of each of everyCall, the others name that rank. All others are connected to it.
func TestCutConnectionsAreNoticed(t *testing.T) {
	const size, victim = 3, 0 // higher ranks dial lower ones
	for _, tt := range everyCall {
		t.Run(tt.name, func(t *testing.T) { testCut(t, "tcp", size, victim, tt, "rank 0: connection lost") })
	}
}

// If the connections between one rank and another machine are cut in the middle of each of everyCall, every rank gets an error. A rank that
// shares memory with that rank cannot know which end of a connection is to blame.
func TestCutBetweenMachinesIsNoticed(t *testing.T) {
	const size, victim = 4, 0
	for _, tt := range everyCall {
		t.Run(tt.name, func(t *testing.T) { testCut(t, "machines", size, victim, tt, ": connection lost") })
	}
}

func testCut(t *testing.T, over string, size, victim int, tt call, want string) {
	var r relay
	w := newWorldOn(t, over, size, func(cfg *InitConfig) {
		if cfg.Rank == victim {
			cfg.Store = relayed{Store: cfg.Store, relay: &r}
		}
	})
	r.cutAfter(50_000)
	var errs []error
	testkit.Within(t, testkit.Patience, func() {
		errs = testkit.Each(size, func(rank int) error { return untilBroken(t.Context(), w[rank], tt) })
	})
	for rank, err := range errs {
		if !errors.Is(err, ErrLost) || rank != victim && !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d of which %d is cut off got %v, want %q", rank, victim, err, want)
		}
	}
	closeAll(w)
	r.close()
}

// If the messages between a rank and the others are silently lost from some moment on, in the middle of each of everyCall, the others name
// that rank after the time-out, and go on without it.
func TestPartitionIsNoticedAtTheTimeout(t *testing.T) {
	for _, tt := range everyCall {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			// On a busy machine another rank may also fail to make progress within the time-out. The test then allows more time.
			for timeout := 300 * time.Millisecond; ; timeout *= 4 {
				err := partition(t, tt, timeout)
				if err == nil {
					return
				}
				if 4*timeout > testkit.Patience {
					t.Fatal(err)
				}
				t.Logf("within %v: %v", timeout, err)
			}
		})
	}
}

// partition plays one call of TestPartitionIsNoticedAtTheTimeout.
func partition(t *testing.T, tt call, timeout time.Duration) error {
	const size, victim = 4, 2
	network := transport.NewNetwork(size)
	w, err := initIn(t.Context(), network, func(cfg *InitConfig) { cfg.Config.Timeout = timeout })
	if err != nil {
		return err
	}
	closeAtEnd(t, w)
	time.AfterFunc(3*time.Millisecond, func() {
		for rank := range size {
			if rank != victim {
				network.Cut(rank, victim)
			}
		}
	})
	begin := time.Now()
	errs := testkit.Each(size, func(rank int) error { return untilBroken(t.Context(), w[rank], tt) })
	if took := time.Since(begin); took < timeout {
		t.Errorf("took %v", took)
	}
	want := fmt.Sprintf("rank %d: no progress for %v: it does not answer", victim, timeout)
	named := false
	for rank, err := range errs {
		if !errors.Is(err, ErrTimeout) {
			t.Errorf("rank %d got %v", rank, err)
		}
		named = named || rank != victim && strings.Contains(err.Error(), want)
	}
	if !named {
		return fmt.Errorf("nobody says %q: %v", want, errs)
	}
	for rank, err := range testkit.Each(size, func(rank int) error {
		next, err := w[rank].Shrink(t.Context())
		if err != nil || rank == victim {
			return err
		}
		return goesOn(t.Context(), next, []int{0, 1, 3})
	}) {
		if (err != nil) != (rank == victim) {
			return fmt.Errorf("shrink: rank %d got %v", rank, err)
		}
	}
	return nil
}

// relay stands between a rank and those that connect to it, and cuts the connections after a number of bytes.
type relay struct {
	listener net.Listener
	tasks    sync.WaitGroup
	limit    atomic.Int64 // bytes; 0: no limit
	passed   atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
}

// relayed is a store in which a rank publishes the relay's address in place of its own.
type relayed struct {
	store.Store
	relay *relay
}

func (s relayed) Set(ctx context.Context, key string, value []byte) error {
	if strings.Contains(key, "transport/") {
		target, machine, _ := strings.Cut(string(value), " ")
		addr, err := s.relay.listen(target)
		if err != nil {
			return err
		}
		value = []byte(addr + " " + machine)
	}
	return s.Store.Set(ctx, key, value)
}

func (r *relay) listen(target string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	r.listener = l
	r.tasks.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", target)
			if err != nil {
				from.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, from, to)
			r.mu.Unlock()
			r.tasks.Go(func() { io.Copy(counter{to, r}, from) })
			r.tasks.Go(func() { io.Copy(counter{from, r}, to) })
		}
	})
	return l.Addr().String(), nil
}

// counter is one direction of a relayed connection.
type counter struct {
	net.Conn
	relay *relay
}

func (c counter) Write(p []byte) (int, error) {
	limit := c.relay.limit.Load()
	if passed := c.relay.passed.Add(int64(len(p))); limit > 0 && passed > limit {
		c.relay.cut()
	}
	return c.Conn.Write(p)
}

func (r *relay) cutAfter(bytes int64) { r.limit.Store(r.passed.Load() + bytes) }

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.conns {
		conn.Close()
	}
}

func (r *relay) close() {
	r.listener.Close()
	r.cut()
	r.tasks.Wait()
}
