package jobfile

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/rundir"
	"ddpbatch/slurm"
)

// hetJob is a job of two components: one node with two ranks, and two nodes with three ranks each.
const hetJob = `name = "x"
[slurm]
gpus_per_node = 1
[[slurm.component]]
nodes = 2
nproc_per_node = 3
cpus_per_task = 4
partition = "fat"
[launch]
nproc_per_node = 2
command = ["true"]
`

func TestComponents(t *testing.T) {
	job, _, err := parse(hetJob)
	if err != nil {
		t.Fatal(err)
	}
	if job.Nodes() != 3 || job.LeastNodes() != 3 || !slices.Equal(job.Launch.NprocPerNode.Counts, []int{2, 3, 3}) {
		t.Errorf("%d to %d nodes, ranks %v", job.LeastNodes(), job.Nodes(), job.Launch.NprocPerNode.Counts)
	}
	if got := job.Summary(); got != `x runs true on 1 node x 2 ranks + 2 nodes x 3 ranks` {
		t.Error(got)
	}
	script := job.BatchScript("/r")
	want := []slurm.Component{{Nodes: 2, Nproc: 3, CPUsPerRank: 4, Options: slurm.Options{List: []slurm.Option{
		{Name: "nodes", Value: "2"}, {Name: "cpus-per-task", Value: "4"}, {Name: "partition", Value: "fat"},
	}}}}
	if script.Nodes != 1 || script.Nproc != 2 || script.CPUsPerRank != 0 || !reflect.DeepEqual(script.Components, want) {
		t.Errorf("%+v", script)
	}

	// the list of launch.nproc_per_node covers the nodes of all components
	listed := strings.NewReplacer("nproc_per_node = 3\n", "", "nproc_per_node = 2", "nproc_per_node = [2, 3, 3]").Replace(hetJob)
	other, _, err := parse(listed)
	if err != nil || !reflect.DeepEqual(job.BatchScript("/r"), other.BatchScript("/r")) {
		t.Errorf("with a list of ranks: %+v, %v", other, err)
	}

	// an override removes the components, or replaces them
	for set, nodes := range map[string]int{"slurm.component=[]": 1, "slurm.component=[{nodes = 4}, {}]": 6} {
		job, _, err := Parse("job.toml", "/jobs", []byte(hetJob), []string{set})
		if err != nil || job.Nodes() != nodes || len(job.Launch.NprocPerNode.Counts) != 1 {
			t.Errorf("%s: %+v, %v", set, job, err)
		}
	}
}

func TestComponentFaults(t *testing.T) {
	change := func(old, new string) string { return strings.Replace(hetJob, old, new, 1) }
	for _, c := range []struct {
		src  string
		want []string
	}{
		{change(`partition = "fat"`, "partition = 3\ngress = 1"), []string{
			`job.toml:8:1: slurm.component.partition: write text in quotes`,
			`job.toml:9:1: unknown key slurm.component.gress: did you mean slurm.component.gres?`}},
		{change(`partition = "fat"`, `time = "1:00"`), []string{
			`job.toml:8:1: key slurm.component.time: all components of a job share time: write it in [slurm]`}},
		{change(`partition = "fat"`, `ntasks = 3`), []string{
			`job.toml:8:1: key "ntasks": it does not belong in [slurm]: set launch.nproc_per_node and slurm.nodes`}},
		{change("nodes = 2", `nodes = "1-2"`), []string{
			`job.toml:5:1: slurm.component.nodes: write a whole number from 1, without quotes`,
		}},
		{change("[[slurm.component]]", "[slurm.component]"), []string{
			`job.toml:4:8: slurm.component must be tables, each below a [[slurm.component]], not a table`}},
		{change("gpus_per_node = 1", `nodes = "1-2"`), []string{
			`job.toml:4:9: slurm.component: a heterogeneous job cannot have a range of nodes, slurm.nodes = "1-2": write one number`}},
		{change("gpus_per_node = 1", `array = "1-2"`), []string{
			`job.toml:4:9: slurm.component: Slurm does not take arrays of heterogeneous jobs: leave slurm.array and [sweep] out, ` +
				`and submit a job for each`}},
		{hetJob + "min_nodes = 1\n", []string{
			`job.toml:4:9: slurm.component: a heterogeneous job cannot go on with fewer nodes: leave launch.min_nodes out`}},
		{change("nproc_per_node = 2", `nproc_per_node = "gpu"`), []string{
			`job.toml:6:1: slurm.component.nproc_per_node cannot be combined with a list or a word in launch.nproc_per_node: ` +
				`write there the number of ranks of each of [slurm]'s own nodes`,
			`job.toml:7:1: slurm.component.cpus_per_task is per rank, so launch.nproc_per_node must be a number: write one, or leave ` +
				`slurm.component.cpus_per_task out and ask for whole nodes with slurm.exclusive = true`}},
		{strings.Replace(change("nproc_per_node = 3\n", ""), "nproc_per_node = 2", "nproc_per_node = [1, 2]", 1), []string{
			`job.toml:9:1: launch.nproc_per_node lists 2 nodes, but the nodes of all components are 3: write one number for ` +
				`each node, or a single one`}},
		{strings.Replace(change("nproc_per_node = 3\n", ""), "nproc_per_node = 2", "nproc_per_node = [1, 2, 3]\nmode = \"task\"", 1),
			[]string{
				`job.toml:4:1: slurm.component: if launch.mode is "task", srun starts the same number of tasks on ` +
					`every node of a component`}},
		{change(`partition = "fat"`, "gpus_per_task = 1"), []string{
			`job.toml:8:1: slurm.component.gpus_per_task: with launch.mode = "agent" srun starts one task a node, so the option would ` +
				`count once for all ranks of a node; set slurm.component.gpus_per_node instead`}},
		{change("nodes = 2", "nodes = 70000"), []string{
			`job.toml:4:9: slurm.component: the job has 70001 nodes, but Slurm gives a job at most 65536`}},
		{hetJob + strings.Repeat("[[slurm.component]]\n", 127), []string{
			`job.toml:4:9: slurm.component: with [slurm] these are 129 components, but Slurm gives a job at most 128`}},
	} {
		checkFaults(t, c.src, nil, c.want...)
	}
	_, _, err := Parse("job.toml", "/jobs", []byte(hetJob+"[sweep]\n\"setup.env.A\" = [1, 2]\n"), nil)
	if err == nil || !strings.Contains(err.Error(), "Slurm does not take arrays of heterogeneous jobs") {
		t.Errorf("a sweep: %v", err)
	}
}

// TestComponentsMayBeInTasks: srun starts the ranks of each component by its own number.
func TestComponentsMayBeInTasks(t *testing.T) {
	job, _, err := parse(hetJob + "mode = \"task\"\n")
	if err != nil {
		t.Fatal(err)
	}
	if script := job.BatchScript("/r"); script.Nproc != 2 || script.Components[0].Nproc != 3 {
		t.Errorf("%+v", script)
	}
}

// TestForbiddenInComponents: what a site forbids in [slurm] is also forbidden in each component, and a file of defaults cannot have
// components.
func TestForbiddenInComponents(t *testing.T) {
	d, err := ParseDefaults(rundir.DefaultsFile{Name: "site.toml", Site: true, Text: "[forbid]\n\"slurm.partition\" = \"ask us\"\n"})
	if err != nil {
		t.Fatal(err)
	}
	const want = `job.toml:8:1: slurm.component.partition is not for jobs of this site: ask us (site.toml:2:1)`
	if _, _, err := d.Parse("job.toml", "/jobs", []byte(hetJob), nil); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
	const component = `slurm.component=[{partition = "fat"}]`
	if err := d.CheckSets([]string{component}); err == nil || !strings.Contains(err.Error(), "not for jobs of this site") {
		t.Errorf("%v", err)
	}
	_, err = ParseDefaults(rundir.DefaultsFile{Name: "user.toml", Text: "[[slurm.component]]\nnodes = 1\n"})
	if err == nil || !strings.Contains(err.Error(), "[[slurm.component]] belongs in a job file") {
		t.Errorf("%v", err)
	}
}

// TestComponentsAreShown: the output of "config show" is read as the same job.
func TestComponentsAreShown(t *testing.T) {
	var none *Defaults
	settings, _, err := none.JobSettings("job.toml", "/jobs", []byte(hetJob), nil)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, s := range settings {
		value, err := tomlValue(s.Redacted().Value)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s = %s\n", s.Key, value)
	}
	job, _, err := parse(out.String())
	before, _, _ := parse(hetJob)
	if err != nil || job.Nodes() != 3 || job.BatchScript("/r").Components[0].Nproc != before.BatchScript("/r").Components[0].Nproc {
		t.Errorf("%v, of\n%s", err, out.String())
	}
}
