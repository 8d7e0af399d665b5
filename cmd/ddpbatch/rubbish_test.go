package main

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
)

// rubbishConnections is the number of connections from outside to a running job.
const rubbishConnections = 1000

// TestRubbishDisturbsNobody sends random bytes to every port on which a running job listens, over many connections, some of which stay
// open. The run ends with exactly the same result as without them.
func TestRubbishDisturbsNobody(t *testing.T) {
	straight := t.TempDir()
	writeJob(t, straight)
	alone, out := command(straight, "simulate", "long.toml")
	if err := alone.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	dir := t.TempDir()
	writeJob(t, dir)
	cmd, out := command(dir, "simulate", "long.toml")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var run *rundir.Dir
	eventually(t, time.Minute, "the run trains", func() bool {
		if run == nil {
			run = runMade(t, dir)
			return false
		}
		m, ok, err := run.LastMetrics()
		return err == nil && ok && m.Step > 0
	})
	held := processOf(t, run, "RANK=1") // all ranks wait for it, so that the run does not end too soon
	if err := syscall.Kill(held, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	goOn := sync.OnceFunc(func() { _ = syscall.Kill(held, syscall.SIGCONT) })
	t.Cleanup(goOn)
	ports := listening(t, processesOf(run))
	if len(ports) == 0 {
		t.Fatal("no process of the run listens")
	}
	var open []net.Conn
	for i := range rubbishConnections {
		if i == rubbishConnections/10 {
			goOn()
		}
		conn, err := net.DialTimeout("tcp", ports[i%len(ports)].String(), 10*time.Second)
		if err != nil {
			break // the run has ended, so the connections did not delay it
		}
		open = append(open, conn)
		conn.SetWriteDeadline(time.Now().Add(time.Second))
		io.CopyN(conn, rand.Reader, int64(i)) // the run may also close the connection
		if i%2 == 0 {
			conn.Close()
		}
	}
	t.Logf("%d connections to %v", len(open), ports)
	err := cmd.Wait()
	for _, conn := range open {
		conn.Close()
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(open) < rubbishConnections/10 {
		t.Errorf("only %d connections were made before the run ended", len(open))
	}
	sameTensors(t, finalState(t, runMade(t, dir)), finalState(t, runMade(t, straight)))
}

func writeJob(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "long.toml"), []byte(stoppableJob), 0o600); err != nil {
		t.Fatal(err)
	}
}

// listening returns the addresses at which processes accept TCP connections: their sockets in state 0A in /proc/net/tcp (see proc_net(5)).
func listening(t *testing.T, pids []int) []netip.AddrPort {
	t.Helper()
	own := make(map[string]bool)
	for _, pid := range pids {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, link := range links {
			if target, err := os.Readlink(link); err == nil {
				own[target] = true
			}
		}
	}
	f, err := os.Open("/proc/net/tcp")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var ports []netip.AddrPort
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) < 10 || fields[3] != "0A" || !own["socket:["+fields[9]+"]"] {
			continue
		}
		n, err := strconv.ParseUint(strings.Replace(fields[1], ":", "", 1), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		addr := netip.AddrFrom4([4]byte{byte(n >> 16), byte(n >> 24), byte(n >> 32), byte(n >> 40)})
		ports = append(ports, netip.AddrPortFrom(addr, uint16(n)))
	}
	return ports
}
