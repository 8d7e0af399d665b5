package main

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// site is a Slurm cluster that scripts/slurm-cluster made on this machine, with nodes n1, n2 and so on.
type site struct {
	script string   // scripts/slurm-cluster
	env    []string // of commands that use it, as NAME=value
}

// sites are the clusters on which tests run.
type sites struct {
	usual     []*site // three, each of four nodes: the one that scripts/test starts, and two like it
	wide      *site   // four nodes with 16 CPUs, more than the machine may have, with neither binding nor limits
	faults    *site   // 21 such nodes
	accounted *site   // four nodes with 16 CPUs, neither binding nor limits, and with accounting; nil unless testkit.IsLong
}

// startSites starts all clusters except the first, which the environment names, or skips the test. It stops them after the test.
func startSites(t *testing.T) sites {
	t.Helper()
	script := testkit.SlurmCluster(t)
	if os.Getenv("SLURM_CONF") == "" {
		t.Fatalf(`DDPBATCH_TEST_SLURM is set and SLURM_CONF is not: eval "$(%s env)"`, script)
	}
	lockSites(t)
	others := slices.DeleteFunc(os.Environ(), func(entry string) bool { // settings for the first cluster only
		return strings.HasPrefix(entry, "SLURM_CLUSTER_") && !strings.HasPrefix(entry, "SLURM_CLUSTER_CGROUPS=")
	})
	own := func(name string, settings ...string) *site {
		dir := filepath.Join(os.TempDir(), "ddpbatch-rows-"+name) // scripts/test uses the same path
		s := &site{script: script, env: append(slices.Clone(others), "SLURM_CLUSTER_DIR="+dir, "SLURM_CONF="+dir+"/slurm.conf")}
		for _, setting := range settings {
			s.env = append(s.env, "SLURM_CLUSTER_"+setting)
		}
		t.Cleanup(func() { s.down(t) })
		return s
	}
	first := &site{script: script, env: os.Environ()}
	more := []*site{
		own("usual2", "NET=10.78.2", "PORT=17417"),
		own("usual3", "NET=10.78.3", "PORT=17317"),
		own("wide", "NET=10.78.4", "PORT=17217", "CGROUPS=no"),
		own("faults", "NET=10.78.1", "PORT=17617", "CGROUPS=no", "NODES=21", "GPUS=0"),
	}
	var accounted *site
	if testkit.IsLong() {
		accounted = own("accounted", "NET=10.78.5", "PORT=17117", "DBD=yes", "CGROUPS=no")
		more = append(more, accounted)
	}
	var all sync.WaitGroup
	for _, s := range more {
		all.Go(func() {
			s.down(t) // the remains of a run that was killed
			if out, err := s.command(t.Context(), script, "up").CombinedOutput(); err != nil {
				t.Errorf("slurm-cluster up: %v\n%s", err, out)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return sites{usual: []*site{first, more[0], more[1]}, wide: more[2], faults: more[3], accounted: accounted}
}

// lockSites waits until no other process uses the clusters that startSites starts.
func lockSites(t *testing.T) {
	t.Helper()
	lock, err := os.Open(os.TempDir()) // this lock leaves no file
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	eventually(t, 30*time.Minute, "nobody else uses the clusters of these tests", func() bool {
		return syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
	})
}

// down stops the cluster and removes its directory.
func (s *site) down(t *testing.T) {
	if out, err := s.command(context.Background(), s.script, "down").CombinedOutput(); err != nil {
		t.Errorf("slurm-cluster down: %v\n%s", err, out)
	}
	if err := os.RemoveAll(filepath.Dir(s.conf())); err != nil {
		t.Error(err)
	}
}

// command returns a command that talks to the site.
func (s *site) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = slices.Clone(s.env)
	return cmd
}

// conf returns the path of its slurm.conf.
func (s *site) conf() string {
	for _, entry := range slices.Backward(s.env) { // if there are several, the last one counts
		if path, ok := strings.CutPrefix(entry, "SLURM_CONF="); ok {
			return path
		}
	}
	return ""
}

// row is a test on a cluster.
type row struct {
	name string
	run  func(*testing.T, *cluster)
}

// lanes returns a list that has the site n times, so that runRows runs n rows on it at once.
func lanes(s *site, n int) []*site { return slices.Repeat([]*site{s}, n) }

// runRows runs rows, at most one at a time for each entry of on: when a row has ended, the next one starts.
func runRows(t *testing.T, on []*site, rows []row) {
	left := make(chan row, len(rows))
	for _, r := range rows {
		left <- r
	}
	close(left)
	var all sync.WaitGroup
	for _, s := range on {
		all.Go(func() {
			for r := range left {
				t.Run(r.name, func(t *testing.T) { r.run(t, newCluster(t, s)) })
			}
		})
	}
	all.Wait()
}

// nodeAt returns the node to which a name or an address belongs, or "loopback".
func (s *site) nodeAt(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil && addr.IsLoopback() {
		return "loopback"
	}
	hosts, err := os.ReadFile(filepath.Join(filepath.Dir(s.conf()), "hosts"))
	if err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(hosts)) {
		if words := strings.Fields(line); slices.Contains(words, host) {
			return words[len(words)-1]
		}
	}
	return "no node"
}
