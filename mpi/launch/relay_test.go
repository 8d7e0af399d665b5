package launch

import (
	"bytes"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// relay holds the first of a run's ports, passes what agent 1 says on to agent 0, who listens at a later one, and passes the answers back.
type relay struct {
	mu     sync.Mutex
	change func(part []byte) []byte // of the answers
	passed bytes.Buffer             // all that went by, both ways
}

// relayed puts a relay between agent 1 and agent 0.
func relayed(t *testing.T, w *world) *relay {
	t.Helper()
	ports := w.agents[0].Ports
	l, err := listenFirst([]string{loopback}, ports[:8])
	must(t, err)
	t.Cleanup(func() { l.Close() })
	w.agents[1].Ports = []int{portOf(l)}
	r := &relay{change: func(part []byte) []byte { return part }}
	go func() {
		for near, err := l.Accept(); err == nil; near, err = l.Accept() {
			go r.serve(near, ports, portOf(l))
		}
	}()
	return r
}

func (r *relay) serve(near net.Conn, ports []int, own int) {
	defer near.Close()
	for _, port := range ports {
		if port == own {
			continue
		}
		far, err := net.Dial("tcp", joinPort(loopback, port))
		if err != nil {
			continue
		}
		defer far.Close()
		go r.pass(far, near, false)
		r.pass(near, far, true)
		return
	}
}

func (r *relay) pass(to, from net.Conn, answers bool) {
	defer to.(*net.TCPConn).CloseWrite()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		part := buf[:n]
		r.mu.Lock()
		r.passed.Write(part)
		if answers && n > 0 {
			part = r.change(part)
		}
		r.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(part); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// TestRelayBetweenAgents lets agent 1 reach agent 0 only through a relay. The run begins, because the relay passes on what it cannot
// read: it sees neither MASTER_PORT nor a host's name.
func TestRelayBetweenAgents(t *testing.T) {
	w := newWorld(t, []int{1, 1}, "environ")
	r := relayed(t, w)
	if v := w.agree(w.run()); v.Cause != "done" {
		t.Fatalf("ended with %+v", v)
	}
	port := w.environOf("n1", 0)["MASTER_PORT"]
	if other := w.environOf("n2", 1)["MASTER_PORT"]; port == "" || other != port {
		t.Errorf("MASTER_PORT is %q on n1 and %q on n2", port, other)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.passed.Len() == 0 {
		t.Fatal("nothing went through the relay")
	}
	for _, text := range []string{port, "MASTER", "environ", w.agents[0].RunID, "MasterPort"} {
		if strings.Contains(r.passed.String(), text) {
			t.Errorf("the relay could read %q", text)
		}
	}
}

// TestRelayChangesThePlan has the relay change the last byte of each answer from a time on at which agent 1 has proved itself, and the plan
// is yet to come: agent 1 starts no worker.
func TestRelayChangesThePlan(t *testing.T) {
	w := newWorld(t, []int{1, 1, 1}, "environ")
	for i := range w.agents {
		w.agents[i].JoinTimeout = 10 * time.Second
	}
	r := relayed(t, w)
	changed := 0
	first, second := w.begin(t.Context(), 0), w.begin(t.Context(), 1)
	w.awaitLog("an agent came")
	r.mu.Lock()
	r.change = func(part []byte) []byte { changed++; part[len(part)-1] ^= 1; return part }
	r.mu.Unlock()
	third := w.begin(t.Context(), 2)
	for i, end := range []result{<-first, <-second, <-third} {
		if end.Cause == "done" {
			t.Errorf("agent %d ended with %+v", i, end)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if changed == 0 {
		t.Error("the relay had nothing to change")
	}
	if text, err := os.ReadFile(w.dir.LogPath(1, "n2", 1, "out")); err == nil && len(text) > 0 {
		t.Errorf("agent 1 has started a worker:\n%s", text)
	}
}
