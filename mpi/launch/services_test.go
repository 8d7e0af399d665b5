package launch

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"ddpbatch/internal/auth"
)

// givenPort is one that nobody has, nor is given by the kernel meanwhile.
func givenPort(t *testing.T) int {
	t.Helper()
	port, err := freePort(Ports(rand.Text(), 16))
	must(t, err)
	return port
}

// freePort finds one that nobody listens on or has claimed now.
func freePort(ports []int) (int, error) {
	l, err := listenFirst([]string{""}, ports)
	if err != nil {
		return 0, err
	}
	return portOf(l), l.Close()
}

// chosenPorts has so many runs on one machine settle the MASTER_PORT of a round at once, from one list, and returns them when all have.
// The workers of none have bound it yet. The runs' rounds end with end.
func chosenPorts(t *testing.T, runs int, torchStore func(run int) bool) (ports []int, end func()) {
	t.Helper()
	list := Ports(rand.Text(), runs) // what two steps of one seed have
	meetings, plans := make([]*rendezvous, runs), make([]*layout, runs)
	var wg sync.WaitGroup
	for i := range runs {
		c := AgentConfig{
			Identity: Identity{RunID: "test"},
			World:    World{Count: 1},
			Network:  Network{Ports: list},
			Workers:  Workers{TorchStore: torchStore(i)},
			Log:      slog.New(slog.DiscardHandler),
		}
		meetings[i], plans[i] = newRendezvous(t.Context(), c, network{}), &layout{Listen: loopback}
		wg.Go(func() {
			if err := meetings[i].serveWorkers(plans[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, l := range plans {
		ports = append(ports, l.MasterPort)
	}
	return ports, func() {
		for _, r := range meetings {
			must(t, r.services.close())
		}
	}
}

// Rank 0 binds its port long after the agent has chosen it: until then, and until the round ends, nobody else may have that one.
func TestMasterPortOfEachRun(t *testing.T) {
	const trials, runs = 20, 8
	for _, row := range []struct {
		name       string
		torchStore func(run int) bool
	}{
		{"rank 0 serves", func(int) bool { return false }},
		{"every second agent serves", func(run int) bool { return run%2 == 0 }},
	} {
		for range trials {
			ports, end := chosenPorts(t, runs, row.torchStore)
			if slices.Sort(ports); len(slices.Compact(slices.Clone(ports))) != runs {
				t.Errorf("%s: runs at once have the ports %v", row.name, ports)
			}
			for _, port := range ports { // as a later run finds it, and one of another user, whom permissions do not matter to
				if _, err := listenFirst([]string{""}, []int{port}); !errors.Is(err, syscall.EADDRINUSE) {
					t.Errorf("%s: port %d is a run's, and taken: %v", row.name, port, err)
				}
			}
			end()
			for _, port := range ports {
				claim, err := claimPort("", port)
				if err != nil {
					t.Errorf("%s: the round has ended, and its port is claimed: %v", row.name, err)
					continue
				}
				must(t, claim.Close())
			}
		}
	}
}

// A claim holds for every user of the machine, and a network namespace has ports, and claims, of its own.
func TestMasterPortOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be another user and in another network namespace")
	}
	port := givenPort(t)
	claim, err := claimPort("", port)
	must(t, err)
	defer claim.Close()
	for _, row := range []struct {
		name, want string
		as         syscall.SysProcAttr
	}{
		{"another user", "true false", syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}},
		{"another namespace", "false true", syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}},
	} {
		cmd := exec.Command("/proc/self/exe", "claim", fmt.Sprint(port)) // whose folder the user cannot enter
		cmd.Env, cmd.SysProcAttr = []string{workerSwitch + "=1"}, &row.as
		out, err := cmd.CombinedOutput()
		if errors.Is(err, syscall.EPERM) {
			t.Skipf("%s: this root may not: %v", row.name, err)
		}
		if err != nil || string(out) != row.want {
			t.Errorf("%s: is it taken, is it claimed: %s, %v; want %s", row.name, out, err, row.want)
		}
	}
}

// Whoever claims all the ports that a run tries keeps it from none.
func TestMasterPortsAreClaimed(t *testing.T) {
	secret, err := auth.NewSecret()
	must(t, err)
	c := AgentConfig{
		Identity: Identity{RunID: rand.Text(), Secret: secret},
		World:    World{Count: 1},
		Network:  Network{Ports: Ports(rand.Text(), 4)},
		Log:      slog.New(slog.DiscardHandler),
		Workers:  Workers{Builtin: true},
	}
	r := newRendezvous(t.Context(), c, network{})
	claimed := slices.Concat(c.Ports, Ports(fmt.Sprint(c.RunID, r.nonce, 0), 256), Ports(c.RunID+"/workers/0/0", 256))
	for _, port := range claimed {
		claim, err := claimPort("", port)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		must(t, err)
		defer claim.Close()
	}
	l := &layout{}
	must(t, r.serveWorkers(l))
	defer r.services.close()
	if l.MasterPort == 0 || slices.Contains(claimed, l.MasterPort) {
		t.Errorf("MASTER_PORT is %d", l.MasterPort)
	}
	if l.WorkerPort == 0 || slices.Contains(claimed, l.WorkerPort) {
		t.Errorf("the store of ddpbatch's own workers is at %d", l.WorkerPort)
	}
}

// Even where somebody has claimed every port there is.
func TestEveryPortIsClaimed(t *testing.T) {
	all := func(_ string, port int) (io.Closer, error) {
		return nil, fmt.Errorf("claim port %d: %w: %w", port, errClaimed, syscall.EADDRINUSE)
	}
	l, claim, err := takePortBy(all, []string{loopback}, append(Ports(rand.Text(), 4), anyPort...))
	must(t, err)
	defer l.Close()
	if err := claim.Close(); err != nil || portOf(l) == 0 {
		t.Errorf("port %d, %v", portOf(l), err)
	}
}

func TestMasterPortAsGiven(t *testing.T) {
	port := givenPort(t)
	w := newWorld(t, []int{1, 1}, "environ")
	for i := range w.agents {
		w.agents[i].MasterPort = port
	}
	w.agree(w.run())
	if got := w.environOf("n2", 1)["MASTER_PORT"]; got != fmt.Sprint(port) {
		t.Errorf("MASTER_PORT is %s, want %d", got, port)
	}
}

// Ranks would meet in the store of whoever has the port.
func TestMasterPortIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", loopback+":0")
	must(t, err)
	defer l.Close()
	w := newWorld(t, []int{1, 1}, "say", "started")
	for i := range w.agents {
		w.agents[i].MasterPort = portOf(l)
	}
	for i, r := range w.run() {
		if r.err == nil || r.Cause != "start" || r.Exit != exitFailed || !strings.Contains(r.Message, "or give another --master-port") {
			t.Errorf("agent %d ended with %+v", i, r)
		}
	}
	if log := w.log.String(); strings.Contains(log, "worker started") {
		t.Errorf("a worker was started:\n%s", log)
	}
}

// Two runs that begin at once have both found the port free, as the worker that is to bind it does so later.
func TestMasterPortOfAnotherRun(t *testing.T) {
	c := AgentConfig{Network: Network{MasterPort: givenPort(t), MasterAddr: "n1"}}
	first, err := c.claimMasterPort()
	must(t, err)
	worker, err := net.Listen("tcp", fmt.Sprintf(":%d", c.MasterPort))
	must(t, err) // the claim leaves the port to the worker
	must(t, worker.Close())

	c.MasterAddr = "n1.cluster" // another name of it
	if _, err := c.claimMasterPort(); err == nil || !strings.Contains(err.Error(), "which another run on this machine was given, too") {
		t.Errorf("claimed once more: %v", err)
	}
	must(t, first.Close())
	again, err := c.claimMasterPort()
	must(t, err)
	must(t, again.Close())
}

// Pretended nodes have an address each, and their runs do not meet; but the worker of rank 0 on a real one has all addresses of the machine.
func TestMasterPortOfASimulation(t *testing.T) {
	c := AgentConfig{Network: Network{MasterPort: givenPort(t), MasterAddr: "n1"}}
	taken := func(c AgentConfig) {
		t.Helper()
		if _, err := c.claimMasterPort(); err == nil || !strings.Contains(err.Error(), "which another run on this machine was given, too") {
			t.Errorf("claimed for %q: %v", c.MasterAddr, err)
		}
	}
	second, third := c, c
	second.OneMachine, second.MasterAddr = true, "127.0.0.2"
	third.OneMachine, third.MasterAddr = true, "127.0.0.3"
	real, err := c.claimMasterPort()
	must(t, err)
	taken(second)
	must(t, real.Close())

	one, err := second.claimMasterPort()
	must(t, err)
	two, err := third.claimMasterPort()
	must(t, err)
	taken(second)
	taken(c)
	other := c
	other.MasterPort = givenPort(t)
	elsewhere, err := other.claimMasterPort()
	must(t, err)
	must(t, elsewhere.Close())
	must(t, one.Close())
	taken(c)
	must(t, two.Close())
	real, err = c.claimMasterPort()
	must(t, err)
	must(t, real.Close())
}

// PyTorch's store, where the agent serves it, is at one address alone.
func TestMasterPortOfTheTorchStore(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.2:0")
	must(t, err)
	defer l.Close()
	c := AgentConfig{Network: Network{MasterPort: portOf(l), MasterAddr: "n1"}}
	if _, err := c.claimMasterPort(); err == nil || !strings.Contains(err.Error(), "cannot be listened on") {
		t.Errorf("a worker is to bind all addresses, and it was claimed: %v", err)
	}
	c.TorchStore = true
	claim, err := c.claimMasterPort()
	must(t, err)
	must(t, claim.Close())
}

// PyTorch's store is at MASTER_PORT before the workers are, and a fresh one in each round; the workers are told so.
func TestTorchStore(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "torch", "1")
	for i := range w.agents {
		w.agents[i].TorchStore, w.agents[i].Policy.MaxRestarts = i == 0, 1 // agent 0 decides for all
		w.agents[i].Env = append(w.agents[i].Env, "TORCHELASTIC_USE_AGENT_STORE=False")
	}
	v := w.agree(w.run())
	if v.Cause != "done" || v.Round != 1 {
		t.Errorf("verdict is %+v", v)
	}
	for attempt := 1; attempt <= 2; attempt++ {
		sum := 0
		for rank, host := range []string{"n1", "n2"} {
			var n int
			if _, err := fmt.Sscanf(w.logAt(attempt, host, rank, "out"), "True %d\n", &n); err != nil {
				t.Errorf("rank %d said %q", rank, w.logAt(attempt, host, rank, "out"))
			}
			sum += n
		}
		if sum != 1+2 {
			t.Errorf("in attempt %d the ranks counted to %d in all, want 1 and 2: not one fresh store", attempt, sum)
		}
	}
}

// A port that was given is the store's in every round.
func TestTorchStoreAtAGivenPort(t *testing.T) {
	port := givenPort(t)
	l, err := net.Listen("tcp", joinPort(loopback, port))
	must(t, err)
	w := newWorld(t, []int{1}, "torch", "2")
	w.agents[0].TorchStore, w.agents[0].Policy.MaxRestarts, w.agents[0].MasterPort = true, 2, port
	if v, err := Run(t.Context(), w.agents[0]); err == nil || v.Cause != "start" || !strings.Contains(v.Message, "or give another --master-port") {
		t.Errorf("with another program at the port it ended with %+v, %v", v, err)
	}
	must(t, l.Close())
	if v := w.agree(w.run()); v.Cause != "done" || v.Round != 2 {
		t.Errorf("verdict is %+v", v)
	}
}
