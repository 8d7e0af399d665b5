package proc

import (
	"slices"
	"testing"
	"testing/fstest"
)

func TestOwnCgroups(t *testing.T) {
	const v1 = "30 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n31 25 0:28 /outer /sys/fs/cgroup/cpu rw - " +
		"cgroup cgroup rw,cpu,cpuacct\n" +
		"32 25 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	for name, tc := range map[string]struct {
		cgroup, mounts string
		want           []string
	}{
		"version 1": {"4:memory:/slurm/job_1\n5:devices:/\n", v1, []string{"sys/fs/cgroup/memory/slurm/job_1"}},
		"several": {"4:memory:/a\n5:cpu,cpuacct:/outer/b\n6:name=systemd:/c\n", v1, []string{"sys/fs/cgroup/memory/a",
			"sys/fs/cgroup/cpu/b", "sys/fs/cgroup/systemd/c"}},
		"the mounts": {"4:memory:/\n0::/\n", v1, nil},
		"version 2": {"0::/system.slice/job_1\n", "30 25 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
			[]string{"sys/fs/cgroup/system.slice/job_1"}},
		"that of the rest": {"0::/job_1\n", v1, nil},
	} {
		root := fstest.MapFS{"proc/self/cgroup": file(tc.cgroup), "proc/self/mountinfo": file(tc.mounts)}
		if got, err := ownCgroups(root); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, %v; want %q", name, got, err, tc.want)
		}
	}
}
