package jobfile

import (
	"slices"
	"strings"
	"testing"
)

// TestGaps gives what this version refuses, each on line 3, and values of the
// same keys that are fine.
func TestGaps(t *testing.T) {
	for _, test := range []struct{ table, line, fault string }{
		{"slurm", `clusters = "a,b"`, `slurm.clusters = "a,b": this version follows its jobs on one cluster only: set SLURM_CLUSTERS in the shell instead`},
		{"mpi", `transport = "tcp"`, ""},
		{"mpi", `transport = "shm"`, ""},
		{"mpi", `transport = "ucx"`, `mpi.transport = "ucx": this version has no InfiniBand transport: write "auto", "shm" or "tcp"`},
	} {
		t.Run(test.table+" "+test.line, func(t *testing.T) {
			_, warnings, err := parse("name = \"x\"\n[" + test.table + "]\n" + test.line + command)
			faults, _ := err.(Faults)
			checkLine(t, "fault", lines(faults), test.fault)
			checkLine(t, "warning", lines(warnings), "")
		})
	}
}

// checkLine wants one finding on line 3, column 1; or none.
func checkLine(t *testing.T, what string, got []string, want string) {
	t.Helper()
	var all []string
	if want != "" {
		all = []string{"job.toml:3:1: " + want}
	}
	if !slices.Equal(got, all) {
		t.Errorf("%s: got %q, want %q", what, got, all)
	}
}

func TestGapsOfTables(t *testing.T) {
	const rest = "\n[container]\nimage = \"x.sif\"\nrunime = \"pyxis\"\n[requeue]\nmax = { crash = 0, cash = 1 }\nlead = \"x\"\non = [\"preempt\", \"boredom\"]"
	checkFaults(t, "name = \"x\""+command+rest, nil,
		"job.toml:5:2: [container]: this version starts no containers: put the call of the container's program into launch.command",
		"job.toml:7:1: unknown key container.runime: did you mean container.runtime?",
		"job.toml:9:20: unknown key requeue.max.cash: did you mean requeue.max.crash?",
		`job.toml:10:1: requeue.lead must be a duration, such as "90s" or "5m", not the text "x"`,
		`job.toml:11:1: item 2 of requeue.on must be "preempt", "timeout", "node", "hang", "oom" or "crash", not the text "boredom"`,
	)
}

// TestGapsNameKeys holds that no gap names a key that the schema does not have.
func TestGapsNameKeys(t *testing.T) {
	for _, g := range gaps() {
		n := schema()
		for name := range strings.SplitSeq(g.key, ".") {
			n = n.child(name)
		}
		if n.read == nil && n.keys == nil {
			t.Errorf("the schema has no key %s", g.key)
		}
		if !strings.Contains(g.why, "this version") {
			t.Errorf("the gap of %s does not say what this version does: %q", g.key, g.why)
		}
	}
}
