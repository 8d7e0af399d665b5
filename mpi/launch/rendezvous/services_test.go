package rendezvous

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
	"ddpbatch/internal/testkit"
)

// chosenPorts makes several runs on one machine choose the MASTER_PORT of a round at once, from one list, and returns the ports. The runs'
// workers have not bound their ports yet. end ends the runs' rounds.
func chosenPorts(t *testing.T, runs int, torchStore func(run int) bool) (ports []int, end func()) {
	t.Helper()
	list := Ports(rand.Text(), runs) // job steps with the same seed share such a list
	all, layouts := make([]*Rendezvous, runs), make([]*Layout, runs)
	var wg sync.WaitGroup
	for i := range runs {
		c := Config{
			Identity:   Identity{RunID: "test"},
			World:      World{Count: 1},
			Network:    Network{Ports: list},
			TorchStore: torchStore(i),
			Log:        slog.New(slog.DiscardHandler),
		}
		all[i], layouts[i] = newRendezvous(t.Context(), c, localNetwork{}), &Layout{Listen: Loopback}
		wg.Go(func() {
			if err := all[i].serveWorkers(layouts[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, l := range layouts {
		ports = append(ports, l.MasterPort)
	}
	return ports, func() {
		for _, r := range all {
			must(t, r.services.close())
		}
	}
}

// freePort returns a port on which no process listens and that no process has claimed.
func freePort(ports []int) (int, error) {
	l, err := listenFirst([]string{""}, ports)
	if err != nil {
		return 0, err
	}
	return l.port(), l.close()
}

// A run gets a port even if other processes have claimed all ports that it tries first.
func TestMasterPortsAreClaimed(t *testing.T) {
	secret := auth.NewSecret()
	c := Config{
		Identity: Identity{RunID: rand.Text(), Secret: secret},
		World:    World{Count: 1},
		Network:  Network{Ports: Ports(rand.Text(), 4)},
		Log:      slog.New(slog.DiscardHandler),
		Builtin:  true,
	}
	r := newRendezvous(t.Context(), c, localNetwork{})
	tried := slices.Concat(c.Ports, Ports(fmt.Sprint(c.RunID, r.nonce, 0), 256), Ports(c.RunID+"/workers/0/0", 256))
	var claimed []int // by this test; a claim of another process may end soon
	for _, port := range tried {
		claim, err := claimPort("", port)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		must(t, err)
		defer claim.Close()
		claimed = append(claimed, port)
	}
	l := &Layout{}
	must(t, r.serveWorkers(l))
	defer r.services.close()
	if l.MasterPort == 0 || slices.Contains(claimed, l.MasterPort) {
		t.Errorf("MASTER_PORT is %d", l.MasterPort)
	}
	if l.WorkerPort == 0 || slices.Contains(claimed, l.WorkerPort) {
		t.Errorf("the store of ddpbatch's own workers is at %d", l.WorkerPort)
	}
}

// A run gets a port even if every port is claimed.
func TestEveryPortIsClaimed(t *testing.T) {
	all := func(_ string, port int) (io.Closer, error) {
		return nil, fmt.Errorf("claim port %d: %w: %w", port, errClaimed, syscall.EADDRINUSE)
	}
	l, claim, err := takePortBy(all, []string{Loopback}, append(Ports(rand.Text(), 4), anyPort...))
	must(t, err)
	defer l.close()
	if err := claim.Close(); err != nil || l.port() == 0 {
		t.Errorf("port %d, %v", l.port(), err)
	}
}

// A given MASTER_PORT that another run has claimed is refused. Without claims, two runs that begin at once would both find it free, because
// the worker binds it later.
func TestMasterPortOfAnotherRunIsRefused(t *testing.T) {
	c := Config{Network: Network{MasterPort: givenPort(t), MasterAddr: "n1"}}
	first, err := c.claimMasterPort()
	must(t, err)
	worker, err := net.Listen("tcp", fmt.Sprintf(":%d", c.MasterPort))
	must(t, err) // the claim leaves the port to the worker
	must(t, worker.Close())

	c.MasterAddr = "n1.cluster" // another name of the same node
	if _, err := c.claimMasterPort(); err == nil || !strings.Contains(err.Error(), "which another run on this machine was given, too") {
		t.Errorf("claimed once more: %v", err)
	}
	must(t, first.Close())
	again, err := c.claimMasterPort()
	must(t, err)
	must(t, again.Close())
}

// Simulated nodes have one address each, so their runs can use the same port. The worker of rank 0 on a real node binds all addresses of
// the machine.
func TestMasterPortOfASimulationIsClaimedByAddress(t *testing.T) {
	c := Config{Network: Network{MasterPort: givenPort(t), MasterAddr: "n1"}}
	taken := func(c Config) {
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

// A MASTER_PORT that is taken on another address can be claimed if the agent serves PyTorch's store, which listens at one address only.
func TestMasterPortOfTheTorchStoreIsAtOneAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.2:0")
	must(t, err)
	defer l.Close()
	c := Config{Network: Network{MasterPort: portOf(l), MasterAddr: "n1"}}
	if _, err := c.claimMasterPort(); err == nil || !strings.Contains(err.Error(), "cannot be listened on") {
		t.Errorf("a worker is to bind all addresses, and it was claimed: %v", err)
	}
	c.TorchStore = true
	claim, err := c.claimMasterPort()
	must(t, err)
	must(t, claim.Close())
}

// No other run can take the port of a run until its round ends, although rank 0 binds that port long after the agent has chosen it.
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
			for _, port := range ports { // a later run, even another user's, finds it in use
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

// A claim holds for every user of the machine. A network namespace has its own ports and claims.
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
		cmd := exec.Command("/proc/self/exe") // the other user cannot enter the program's folder
		cmd.Env, cmd.SysProcAttr = []string{claimSwitch + "=" + fmt.Sprint(port)}, &row.as
		out, err := cmd.CombinedOutput()
		if errors.Is(err, syscall.EPERM) {
			t.Skipf("%s: this root may not: %v", row.name, err)
		}
		if err != nil || string(out) != row.want {
			t.Errorf("%s: is it taken, is it claimed: %s, %v; want %s", row.name, out, err, row.want)
		}
	}
}

// givenPort returns a port that no other test gets before the test ends, at any address.
func givenPort(t testing.TB) int {
	t.Helper()
	return testkit.FreePorts(t, 1)
}
