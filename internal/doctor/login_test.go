package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/slurm"
)

// site is a simulated cluster: it holds what its commands answer.
type site struct {
	config, partitions, mpi string
	testOnly                slurm.Output
	err                     error // the error of all commands
}

func (s site) run(_ context.Context, c slurm.Command) (slurm.Output, error) {
	if s.err != nil {
		return slurm.Output{}, s.err
	}
	switch line := c.Name + " " + strings.Join(c.Args, " "); {
	case line == "scontrol show config":
		return slurm.Output{Stdout: []byte(s.config)}, nil
	case strings.HasPrefix(line, "scontrol -a -o show partition"):
		return slurm.Output{Stdout: []byte(s.partitions)}, nil
	case c.Name == "sinfo":
		return slurm.Output{Stdout: []byte("4\x1f4000\x1fgpu:2\n")}, nil
	case line == "srun --mpi=list":
		return slurm.Output{Stdout: []byte(s.mpi)}, nil
	case c.Name == "sbatch" && slices.Contains(c.Args, "--test-only"):
		return s.testOnly, nil
	}
	return slurm.Output{}, fmt.Errorf("%s is not known here", c.Name)
}

// realSite answers as a real cluster of that release did.
func realSite(t *testing.T, release string) site {
	t.Helper()
	config, err := os.ReadFile(filepath.Join("..", "..", "slurm", "testdata", release, "config", "scontrol-show-config.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return site{
		config: string(config),
		partitions: "PartitionName=main Default=YES MaxNodes=UNLIMITED MaxTime=UNLIMITED MinNodes=0 Nodes=n[1-4] State=UP TotalCPUs=16 " +
			"TotalNodes=4 MaxMemPerNode=UNLIMITED\n",
		mpi: "MPI plugin types are...\n\tnone\n\tcray_shasta\n\tpmi2\n",
		testOnly: slurm.Output{
			Stderr: []byte("sbatch: Job 34 to start at 2026-11-21T00:33:22 using 4 processors on nodes n1 in partition " +
				"main\n")},
	}
}

func (s site) login(t *testing.T) Login {
	return Login{Slurm: &slurm.Client{Run: s.run}, Folder: t.TempDir(), Temp: t.TempDir(), Now: time.Now}
}

// TestClock: the cluster with Slurm 22.05 answered at 00:29:10, in a time without a zone.
func TestClock(t *testing.T) {
	answered := time.Date(2026, 11, 21, 0, 29, 10, 0, time.Local)
	for name, tt := range map[string]struct {
		own  time.Time
		want string
	}{
		"the same": {answered.Add(9 * time.Second), "ok the controller's clock and"}, "behind": {answered.Add(-11 * time.Second),
			"warn the controller's clock and this machine's differ by 11s"},
		"ahead": {answered.Add(time.Hour), "warn the controller's clock and this machine's differ by 1h0m0s"},
	} {
		var f findings
		s, err := (&slurm.Client{Run: realSite(t, "22.05").run}).Settings(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f.clock(s.Answered(), tt.own)
		if got := of(t, f, "clock"); !strings.HasPrefix(string(got.Level)+" "+got.Found, tt.want) {
			t.Errorf("%s: %+v, want %s", name, got, tt.want)
		}
	}
}

// of returns the finding of a check.
func of(t *testing.T, list []Finding, check string) Finding {
	t.Helper()
	at := slices.IndexFunc(list, func(f Finding) bool { return f.Check == check })
	if at < 0 {
		t.Fatalf("nothing is found about %s: %+v", check, list)
	}
	return list[at]
}

func TestLoginOfRealClusters(t *testing.T) {
	for release, want := range map[string]map[string]string{ // "level text" of each check
		"22.05": {
			"slurm": "ok 22.05.8, cluster lab;", "KillWait": "warn Slurm kills a job 5s after TERM; of this time the ranks have 3s",
			"accounting": "ok slurmdbd",
			"processes":  "warn when Slurm ends a job, it may miss processes", "preemption": "ok a preempted job saves",
			"arrays": "ok a larger sweep", "start": "ok agents exchange their addresses through Slurm",
			"partition": "ok the default is main: 4 nodes, up to 4 cores each, up to 2 GPUs each; at most UNLIMITED",
			"sbatch":    "ok Slurm would accept a job: Job 34 to start at", "health": "ok Slurm does not check its nodes",
		},
		"25.11": {"slurm": "ok 25.11.7, cluster ", "KillWait": "warn Slurm kills a job 10s",
			"accounting": "warn the cluster has none: Slurm forgets a job some time after its end"},
	} {
		found := realSite(t, release).login(t).Check(t.Context())
		if Worst(found) != Warn {
			t.Errorf("%s: the worst is %s: %+v", release, Worst(found), found)
		}
		for check, text := range want {
			if f := of(t, found, check); !strings.HasPrefix(string(f.Level)+" "+f.Found, text) {
				t.Errorf("%s: %s: %s %s, want %s", release, check, f.Level, f.Found, text)
			}
		}
		for _, f := range found {
			if (f.Level == OK) != (f.Do == "") && f.Check != "folder" {
				t.Errorf("%s: %s is %s, and says what to do: %q", release, f.Check, f.Level, f.Do)
			}
		}
	}
}

func TestLoginFindings(t *testing.T) {
	set := func(name, value string) func(*site) {
		return func(s *site) { s.config = name + " = " + value + "\n" + s.config } // the first line counts
	}
	for name, tt := range map[string]struct {
		change func(*site)
		check  string
		want   string // "level text; what to do"
	}{
		"an old release":   {set("SLURM_VERSION", "21.08.8"), "slurm", "warn 21.08.8, but ddpbatch is made for 22.05 and later"},
		"no release":       {set("SLURM_VERSION", "(null)"), "slurm", "warn the controller does not report its version"},
		"a usual KillWait": {set("KillWait", "30 sec"), "KillWait", "ok Slurm kills a job 30s after TERM; of this time the ranks have 20s"},
		"no KillWait": {set("KillWait", "soon"), "KillWait",
			`warn ask for KillWait: Slurm says "soon", which is not a number of seconds`},
		"cgroup":        {set("ProctrackType", "proctrack/cgroup"), "processes", "ok Slurm ends all processes"},
		"suspended":     {set("PreemptMode", "GANG,SUSPEND"), "preemption", "warn Slurm may suspend a job"},
		"no preemption": {set("PreemptMode", "OFF"), "preemption", "ok jobs are not preempted"},
		"no arrays":     {set("MaxArraySize", "0"), "arrays", "warn the cluster does not take arrays"},
		"a health check": {func(s *site) { set("HealthCheckProgram", "/usr/sbin/nhc")(s); set("HealthCheckInterval", "300 sec")(s) },
			"health", "ok Slurm runs /usr/sbin/nhc on nodes every 300 sec"},
		"no PMI-2": {func(s *site) { s.mpi = "MPI plugin types are...\n\tnone\n"; set("SrunPortRange", "60001-60010")(s) }, "start",
			"ok agents meet on ports computed from the job's id, within Slurm's range (SrunPortRange=60001-60010)"},
		"limits of the node": {set("PropagateResourceLimitsExcept", "NOFILE,MEMLOCK"), "limits", "ok jobs have the nodes' limits"},
		"no default": {func(s *site) { s.partitions = "PartitionName=main Default=NO State=UP\n" }, "partition",
			"warn the cluster has no default partition; set slurm.partition"},
		"partition down": {func(s *site) { s.partitions = "PartitionName=main Default=YES State=DOWN TotalNodes=4\n" }, "partition",
			"warn the default partition, main, is DOWN"},
		"an account is needed": {
			func(s *site) {
				s.testOnly = slurm.Output{Code: 1,
					Stderr: []byte("allocation failure: Invalid account or account/partition combination specified\n")}
			}, "sbatch", "warn Slurm does not accept a job of one node for one minute without further options: " +
				"sbatch refused: allocation failure: Invalid account",
		},
		"not here":    {func(s *site) { s.err = slurm.ErrNoSlurm }, "slurm", "fail "},
		"unreachable": {func(s *site) { s.err = slurm.ErrUnreachable }, "slurm", "fail "},
		"silent":      {func(s *site) { s.err = context.DeadlineExceeded }, "slurm", "fail the controller has not answered for 10s"},
	} {
		t.Run(name, func(t *testing.T) {
			s := realSite(t, "22.05")
			tt.change(&s)
			found := s.login(t).Check(t.Context())
			if f := of(t, found, tt.check); !strings.HasPrefix(string(f.Level)+" "+f.Text(), tt.want) {
				t.Errorf("%s %s, want %s", f.Level, f.Text(), tt.want)
			}
			if s.err != nil && (len(found) != 2 || Worst(found) != Fail) {
				t.Errorf("%+v", found)
			}
		})
	}
}

func TestLoginFolder(t *testing.T) {
	s := realSite(t, "22.05")
	l := s.login(t)
	if f := of(t, l.Check(t.Context()), "folder"); f.Level == Fail {
		t.Errorf("a good folder: %+v", f)
	}
	if left, _ := os.ReadDir(l.Folder); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	file := filepath.Join(l.Folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l.Folder, l.Defaults = file, errors.New("config.toml:3:1: there is no key")
	found := l.Check(t.Context())
	if f := of(t, found, "folder"); f.Level != Fail || !strings.Contains(f.Found, "cannot write to") {
		t.Errorf("no folder: %+v", f)
	}
	if f := of(t, found, "defaults"); f.Level != Fail || f.Found != l.Defaults.Error() {
		t.Errorf("defaults that cannot be used: %+v", f)
	}
	if got := Nearest(filepath.Join(filepath.Dir(file), "not", "there")); got != filepath.Dir(file) {
		t.Errorf("the nearest folder is %s", got)
	}
}
