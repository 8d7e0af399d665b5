package launch

import (
	"crypto/rand"
	"fmt"
	"net"
	"strings"
	"testing"
)

// givenPort is one that nobody has, nor is given by the kernel meanwhile.
func givenPort(t *testing.T) int {
	t.Helper()
	port, err := freePort(Ports(rand.Text(), 16))
	must(t, err)
	return port
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
	c := AgentConfig{MasterPort: givenPort(t), MasterAddr: "n1"}
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
	c := AgentConfig{MasterPort: givenPort(t), MasterAddr: "n1"}
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
	c := AgentConfig{MasterPort: portOf(l), MasterAddr: "n1"}
	if _, err := c.claimMasterPort(); err == nil || !strings.Contains(err.Error(), "cannot be listened on") {
		t.Errorf("a worker is to bind all addresses, and it was claimed: %v", err)
	}
	c.TorchStore = true
	claim, err := c.claimMasterPort()
	must(t, err)
	must(t, claim.Close())
}
