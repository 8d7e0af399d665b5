package proc

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/fstest"

	"ddpbatch/internal/testkit"
)

// files returns a file system of names and contents.
func files(pairs ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

// with returns base with other contents for some files.
func with(base fstest.MapFS, pairs ...string) fstest.MapFS {
	m := files(pairs...)
	for name, file := range base {
		if m[name] == nil {
			m[name] = file
		}
	}
	return m
}

// versionOne is what Linux 6.18 shows with both versions mounted and Slurm 22.05's cgroup plugin for version 1.
var versionOne = files(
	"proc/self/cgroup", "9:name=systemd:/\n6:freezer:/slurm_n1/uid_0/job_7/step_0\n"+
		"4:memory:/slurm_n1/uid_0/job_7/step_0/task_0\n1:cpu:/\n0::/\n",
	"proc/self/mountinfo", "24 1 0:22 / /proc rw,relatime - proc proc rw\n"+
		"38 30 0:30 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"+
		"39 30 0:31 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"+
		"45 30 0:37 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
	"proc/vmstat", "nr_free_pages 100\noom_kill 3\nunevictable_pgs_culled 0\n",
	"sys/fs/cgroup/memory/slurm_n1/uid_0/job_7/step_0/task_0/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
	"sys/fs/cgroup/memory/slurm_n1/uid_0/job_7/step_0/task_0/memory.failcnt", "0\n",
	"sys/fs/cgroup/memory/slurm_n1/uid_0/job_7/step_0/task_0/memory.limit_in_bytes", "9223372036854771712\n",
	"sys/fs/cgroup/memory/slurm_n1/uid_0/job_7/step_0/task_0/memory.max_usage_in_bytes", "104000000\n",
	"sys/fs/cgroup/memory/slurm_n1/uid_0/job_7/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n",
	"sys/fs/cgroup/memory/slurm_n1/uid_0/job_7/memory.failcnt", "5\n",
	"sys/fs/cgroup/memory/slurm_n1/uid_0/job_7/memory.limit_in_bytes", "104857600\n",
	"sys/fs/cgroup/memory/slurm_n1/uid_0/job_7/memory.max_usage_in_bytes", "104857600\n",
)

// versionTwo has only version 2, with slurmstepd's scope below system.slice.
var versionTwo = files(
	"proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n",
	"proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 "+
		"rw,nsdelegate,memory_recursiveprot\n",
	"proc/vmstat", "oom_kill 3\n",
	"sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/memory.events",
	"low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n",
	"sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/memory.max", "max\n",
	"sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/memory.events", "low 0\nhigh 0\nmax 2\noom 0\noom_kill 0\n",
	"sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/memory.max", "2147483648\n",
	"sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/memory.peak", "2147483648\n",
	"sys/fs/cgroup/system.slice/memory.events", "max 0\noom_kill 8\n",
)

// unlimited is a session on a machine without a limit.
var unlimited = files(
	"proc/self/cgroup", "0::/user.slice\n",
	"proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
	"proc/vmstat", "oom_kill 3\n",
	"sys/fs/cgroup/user.slice/memory.events", "max 0\noom_kill 0\n",
	"sys/fs/cgroup/user.slice/memory.max", "max\n",
	"sys/fs/cgroup/user.slice/memory.peak", "2147483648\n",
)

func TestMemoryNamesTheLimitThatKilled(t *testing.T) {
	const (
		oneTask = "sys/fs/cgroup/memory/slurm_n1/uid_0/job_7/step_0/task_0/"
		oneJob  = "sys/fs/cgroup/memory/slurm_n1/uid_0/job_7/"
		twoTask = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/"
		twoJob  = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/"
	)
	for name, test := range map[string]struct {
		before, after fs.FS
		want          OutOfMemory
		text          string
	}{
		"1: nothing": {versionOne, versionOne, OutOfMemory{}, ""},
		"1: our own, at the job's limit": {versionOne,
			with(versionOne, oneTask+"memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n", oneJob+"memory.failcnt", "90\n",
				"proc/vmstat", "oom_kill 4\n"),
			OutOfMemory{GroupShort, 1, "/slurm_n1/uid_0/job_7", 100 << 20, 100 << 20},
			"the kernel killed a process because the job's memory limit of 100 MiB (the most that was used: 100 MiB) was reached"},
		"1: beside us": {versionOne, with(versionOne, oneJob+"memory.oom_control", "oom_kill 2\n"),
			OutOfMemory{JobShort, 2, "/slurm_n1/uid_0/job_7", 100 << 20, 100 << 20},
			"the kernel killed 2 processes of this job or beside it because the memory limit of 100 MiB (the most that was used: 100 " +
				"MiB) of /slurm_n1/uid_0/job_7 was reached"},
		"1: an old kernel": {with(versionOne, oneTask+"memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n", "proc/vmstat", "x 1\n"),
			with(versionOne, oneTask+"memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n", "proc/vmstat", "x 1\n"), OutOfMemory{}, ""},
		"2: nothing": {versionTwo, versionTwo, OutOfMemory{}, ""},
		"2: our own": {versionTwo,
			with(versionTwo, twoTask+"memory.events", "max 0\noom_kill 2\n", twoJob+"memory.events", "max 30\noom_kill 2\n"),
			OutOfMemory{GroupShort, 2, "/system.slice/slurmstepd.scope/job_7", 2 << 30, 2 << 30},
			"the kernel killed 2 processes because the job's memory limit of 2 GiB (the most that was used: 2 GiB) was reached"},
		"2: another job": {versionTwo,
			with(versionTwo, "sys/fs/cgroup/system.slice/memory.events", "oom_kill 9\n", "proc/vmstat", "oom_kill 4\n"),
			OutOfMemory{Evidence: MachineShort, Kills: 1},
			"the kernel killed a process on this node for lack of memory, perhaps of another job"},
		"no limit anywhere": {unlimited, with(unlimited, "sys/fs/cgroup/user.slice/memory.events", "max 0\noom_kill 1\n",
			"proc/vmstat", "oom_kill 4\n"),
			OutOfMemory{Evidence: GroupShort, Kills: 1},
			"the kernel killed a process of this job because the machine ran short of memory: no limit is set for the job's"},
		"counts that fell": {with(versionTwo, twoTask+"memory.events", "oom_kill 5\n", "proc/vmstat", "oom_kill 9\n"),
			versionTwo, OutOfMemory{}, ""},
		"no cgroups": {files("proc/vmstat", "oom_kill 1\n"), files("proc/vmstat", "oom_kill 3\n"),
			OutOfMemory{Evidence: MachineShort, Kills: 2},
			"the kernel killed 2 processes on this node for lack of memory, perhaps of another job"},
		"nothing at all": {files(), files(), OutOfMemory{}, ""},
	} {
		before, err := ReadMemory(test.before)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		after, err := ReadMemory(test.after)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := after.Since(before)
		if got != test.want || got.String() != test.text || got.Likely() != (test.want.Evidence >= JobShort) {
			t.Errorf("%s: %+v, %q; want %+v, %q", name, got, got, test.want, test.text)
		}
	}
}

// A container sees the hierarchy from its own group downward, or under another name.
func TestMemoryFindsAContainersGroup(t *testing.T) {
	for name, test := range map[string]struct{ cgroup, mount, path string }{
		"own root":      {"0::/\n", "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n", "cg/"},
		"a part":        {"0::/docker/ab/inner\n", "30 23 0:26 /docker/ab /cg rw - cgroup2 cgroup2 rw\n", "cg/inner/"},
		"a part itself": {"0::/docker/ab\n", "30 23 0:26 /docker/ab /cg rw - cgroup2 cgroup2 rw\n", "cg/"},
		"another part":  {"0::/docker/abc\n", "30 23 0:26 /docker/ab /cg rw - cgroup2 cgroup2 rw\n", "cg/"},
		"outside":       {"0::/../../other\n", "30 23 0:26 /../.. /cg rw - cgroup2 cgroup2 rw\n", "cg/other/"},
		"a space":       {"0::/a b\n", `30 23 0:26 / /c\040g rw shared:1 master:2 - cgroup2 cgroup2 rw` + "\n", "c g/a b/"},
		"two at once":   {"5:cpu,memory:/x\n", "30 23 0:26 / /cg rw - cgroup cgroup rw,cpu,memory\n", "cg/x/"},
	} {
		tree := files("proc/self/cgroup", test.cgroup, "proc/self/mountinfo", test.mount,
			test.path+"memory.events", "oom_kill 7\n", test.path+"memory.oom_control", "oom_kill 7\n")
		m, err := ReadMemory(tree)
		if err != nil || len(m.Groups) == 0 || m.Groups[0].Kills != 7 {
			t.Errorf("%s: %+v, %v", name, m, err)
		}
	}
}

func TestMemoryRefusesBadFiles(t *testing.T) {
	const task = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/user/task_0/"
	for name, tree := range map[string]fs.FS{
		"no line of cgroup":    with(versionTwo, "proc/self/cgroup", "rubbish\n"),
		"no path":              with(versionTwo, "proc/self/cgroup", "0::x\n"),
		"no line of mountinfo": with(versionTwo, "proc/self/mountinfo", "30 23\n"),
		"a huge mountinfo":     with(versionTwo, "proc/self/mountinfo", strings.Repeat("x", maxMounts+1)),
		"no number":            with(versionTwo, task+"memory.max", "lots\n"),
		"below zero":           with(versionTwo, task+"memory.max", "-1\n"),
		"too large":            with(versionTwo, task+"memory.max", "99999999999999999999\n"),
		"no count":             with(versionTwo, task+"memory.events", "oom_kill\n"),
		"two counts":           with(versionTwo, task+"memory.events", "oom_kill 1 2\n"),
		"a count of words":     with(versionTwo, task+"memory.events", "max some\n"),
		"a huge file":          with(versionTwo, task+"memory.events", strings.Repeat("x 1\n", maxControl)),
		"a folder":             with(versionTwo, task+"memory.events/x", "", task+"memory.events", ""),
		"vmstat":               with(versionTwo, "proc/vmstat", "oom_kill many\n"),
	} {
		if name == "a folder" {
			delete(tree.(fstest.MapFS), task+"memory.events")
		}
		if m, err := ReadMemory(tree); err == nil {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

func FuzzReadMemory(f *testing.F) {
	for _, tree := range []fstest.MapFS{versionOne, versionTwo} {
		f.Add(tree["proc/self/cgroup"].Data, tree["proc/self/mountinfo"].Data, []byte("max 1\noom_kill 2\n"))
	}
	f.Fuzz(func(t *testing.T, cgroup, mounts, events []byte) {
		tree := files("proc/self/cgroup", string(cgroup), "proc/self/mountinfo", string(mounts), "sys/fs/cgroup/memory.events",
			string(events), "proc/vmstat", string(events))
		m, err := ReadMemory(tree)
		if err == nil && len(m.Groups) > maxDepth {
			t.Errorf("%d groups", len(m.Groups))
		}
		_ = m.Since(Memory{}).String()
	})
}

// If the kernel kills a process because memory ran out, the comparison of two readings reports it.
func TestMemoryReportsARealKill(t *testing.T) {
	const limit = 48 << 20
	group := testkit.MemoryGroup(t, limit)
	run := func(words string) string {
		cmd := exec.Command("/bin/sh", "-c", `echo $$ >"$1"/cgroup.procs && exec "$0" /bin/sh -c "$2"`, os.Args[0], group, words)
		cmd.Env = append(os.Environ(), roleVariable+"=memory", "GOMAXPROCS=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	// at this moment, a test of another package may make the kernel kill a process because memory ran out
	if got := run("kill -KILL $$"); !strings.HasPrefix(got, "0 ") && !strings.HasPrefix(got, fmt.Sprintf("%d ", MachineShort)) {
		t.Errorf("a kill with memory to spare: %s", got)
	}
	// The measuring process must not be the victim, however much memory the race detector makes it need (proc(5), oom_score_adj). The
	// kernel may kill the shell or head instead of tail, which gives its memory back too slowly.
	got := run("echo 1000 >/proc/self/oom_score_adj; head -c 200000000 /dev/zero | tail")
	if !strings.HasPrefix(got, fmt.Sprintf("%d %d the kernel killed ", GroupShort, limit)) {
		t.Errorf("want of memory: %s", got)
	}
}
