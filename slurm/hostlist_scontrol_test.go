package slurm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ddpbatch/slurm"

	"pgregory.net/rapid"
)

// scontrol returns a function that asks the scontrol of this machine to show something. It needs
// no daemon, only a configuration file that it can read.
func scontrol(t *testing.T) func(arg ...string) string {
	t.Helper()
	path, err := exec.LookPath("scontrol")
	if err != nil {
		t.Skip("needs scontrol, which is not installed")
	}
	conf := filepath.Join(t.TempDir(), "slurm.conf")
	text := "ClusterName=x\nSlurmctldHost=localhost\nNodeName=n1\nPartitionName=p Nodes=n1\n"
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return func(arg ...string) string {
		cmd := exec.Command(path, append([]string{"show"}, arg...)...)
		cmd.Env = append(os.Environ(), "SLURM_CONF="+conf)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("scontrol show %q: %v", arg, err)
		}
		return strings.TrimSpace(string(out))
	}
}

// TestHostlistAgainstScontrol compares with the real thing on lists that no one thought of.
func TestHostlistAgainstScontrol(t *testing.T) {
	show := scontrol(t)
	number := rapid.SampledFrom([]string{"0", "1", "01", "3", "007", "9-11", "09-10", "098-101", "8-010", "2-2"})
	item := rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		for range rapid.IntRange(0, 4).Draw(t, "brackets") {
			b.WriteString(rapid.SampledFrom([]string{"n", "a-", "x0", "", "10.0."}).Draw(t, "literal"))
			numbers := rapid.SliceOfN(number, 1, 3).Draw(t, "numbers")
			b.WriteString("[" + strings.Join(numbers, ",") + "]")
		}
		if b.Len() == 0 {
			return rapid.SampledFrom([]string{"login", "n1", "gpu001-ib0"}).Draw(t, "name")
		}
		return b.String() // no text after the last bracket: 22.05 refuses it
	})
	rapid.Check(t, func(t *rapid.T) {
		list := strings.Join(rapid.SliceOfN(item, 1, 3).Draw(t, "items"), ",")
		hosts, err := slurm.ExpandHostlist(list, slurm.MaxNodes)
		if want := strings.Fields(show("hostnames", list)); err != nil || !slices.Equal(hosts, want) {
			t.Errorf("ExpandHostlist(%q) = %q, %v; scontrol: %q", list, hosts, err, want)
		}
		if want := show("hostlist", strings.Join(hosts, ",")); slurm.FoldHostlist(hosts) != want {
			t.Errorf("FoldHostlist(%q) = %q; scontrol: %q", hosts, slurm.FoldHostlist(hosts), want)
		}
	})
}
