package launch

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/launch/rendezvous"
)

// givenPort returns a port that no other test gets before the test ends, at any address.
func givenPort(t testing.TB) int {
	t.Helper()
	return testkit.FreePorts(t, 1)
}

func TestMasterPortIsUsedAsGiven(t *testing.T) {
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

// If MASTER_PORT is taken, the agents end before they start a worker. Otherwise ranks would meet in the store of the run that holds the
// port.
func TestMasterPortIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", rendezvous.Loopback+":0")
	must(t, err)
	defer l.Close()
	w := newWorld(t, []int{1, 1}, "say", "started")
	for i := range w.agents {
		w.agents[i].MasterPort = portOf(l)
	}
	for i, r := range w.run() {
		if r.err == nil || r.Cause != "start" || r.Exit != 1 || !strings.Contains(r.Message, "or give another --master-port") {
			t.Errorf("agent %d ended with %+v", i, r)
		}
	}
	if log := w.log.String(); strings.Contains(log, "worker started") {
		t.Errorf("a worker was started:\n%s", log)
	}
}

// PyTorch's store listens at MASTER_PORT before the workers start, and the workers' environment says so. Each round has a new store.
func TestTorchStoreIsFreshInEachRound(t *testing.T) {
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

func TestTorchStoreKeepsAGivenPort(t *testing.T) {
	port := givenPort(t)
	l, err := net.Listen("tcp", joinPort(rendezvous.Loopback, port))
	must(t, err)
	w := newWorld(t, []int{1}, "torch", "2")
	w.agents[0].TorchStore, w.agents[0].Policy.MaxRestarts, w.agents[0].MasterPort = true, 2, port
	if v, err := Run(t.Context(), w.agents[0]); err == nil || v.Cause != "start" ||
		!strings.Contains(v.Message, "or give another --master-port") {
		t.Errorf("with another program at the port it ended with %+v, %v", v, err)
	}
	must(t, l.Close())
	if v := w.agree(w.run()); v.Cause != "done" || v.Round != 2 {
		t.Errorf("verdict is %+v", v)
	}
}
