package jobfile

import (
	"errors"
	"slices"
	"testing"
	"time"

	"ddpbatch/slurm"
)

func TestLimitsOfThePartitionAreRemarkedOn(t *testing.T) {
	cluster := Cluster{KillWait: 30 * time.Second, Partition: slurm.Partition{
		Name: "gpu", State: "UP", MaxTime: 2 * time.Hour, MinNodes: 2, MaxNodes: 4, MaxMem: -1, Nodes: 8, NodeCPUs: 16,
		NodeMem: 64000, NodeGPUs: 4,
	}}
	unlimited := Cluster{Partition: slurm.Partition{
		Name: "any", State: "UP", MaxTime: slurm.Unlimited, MaxNodes: -1, MaxMem: -1, Nodes: -1, NodeCPUs: -1, NodeMem: -1, NodeGPUs: -1,
	}}
	for text, want := range map[string][]string{
		"slurm.nodes = 2\nslurm.time = \"2:00:00\"\nslurm.mem = \"62G\"\nslurm.gpus_per_node = 4": nil,
		"slurm.nodes = 2\nslurm.time = \"3:00:00\"": {
			"job.toml:3:7: slurm.time: jobs of partition gpu run for at most 02:00:00: lower it; slurm.chain spreads " +
				"longer work over several jobs"},
		"slurm.nodes = 5": {"job.toml:2:7: slurm.nodes: the job asks for 5 nodes, but a job of partition gpu may have at most 4"},
		"slurm.nodes = 9": {"job.toml:2:7: slurm.nodes: the job asks for 9 nodes, but partition gpu has 8"},
		"slurm.nodes = 1": {"job.toml:2:7: slurm.nodes: the job asks for 1 node, but a job of partition gpu must have at least 2"},
		"slurm.nodes = 2\nslurm.mem = \"64G\"": {
			"job.toml:3:7: slurm.mem: the job asks for 64G a node, but nodes of partition gpu give a job at most 64000M"},
		"slurm.nodes = 2\nslurm.mem_per_cpu = \"8G\"\nslurm.cpus_per_task = 4\nlaunch.nproc_per_node = 2": {
			"job.toml:3:7: slurm.mem_per_cpu: the job asks for 8G for each of 8 cores of a node, " +
				"but nodes of partition gpu give a job at most 64000M"},
		"slurm.nodes = 2\nslurm.mem_per_cpu = \"7G\"\nslurm.cpus_per_task = 4\nlaunch.nproc_per_node = 2": nil,
		"slurm.nodes = 2\nslurm.mem_per_gpu = \"32G\"\nslurm.gpus_per_node = 2": {
			"job.toml:3:7: slurm.mem_per_gpu: the job asks for 32G for each of 2 GPUs of a node, " +
				"but nodes of partition gpu give a job at most 64000M"},
		"slurm.nodes = 2\nslurm.mem_per_gpu = \"30G\"\nslurm.gpus_per_node = 2": nil,
		"slurm.nodes = 2\nslurm.gpus_per_task = 2\nlaunch.mode = \"task\"\nlaunch.nproc_per_node = 3": {
			"job.toml:3:7: slurm.gpus_per_task: the job asks for 6 GPUs per node, but nodes of partition gpu have at most 4"},
		"slurm.nodes = 2\nslurm.gpus_per_node = \"a100:8\"": {
			"job.toml:3:7: slurm.gpus_per_node: the job asks for 8 GPUs per node, but nodes of partition gpu have at most 4"},
		"slurm.nodes = 2\nslurm.gres = \"gpu:8\"": {
			"job.toml:3:7: slurm.gres: the job asks for 8 GPUs per node, but nodes of partition gpu have at most 4"},
		"slurm.nodes = 2\nslurm.gpus = \"a100:9\"": {
			"job.toml:3:7: slurm.gpus: the job asks for 9 GPUs on 2 nodes, but nodes of partition gpu have at most 4"},
		"slurm.nodes = \"2-3\"\nslurm.gpus = 12": nil,
		"slurm.nodes = 2\nlaunch.nproc_per_node = 17": {
			"job.toml:3:8: launch.nproc_per_node: the job asks for 17 cores per node, but nodes of partition gpu have at most 16"},
		"slurm.nodes = 2\nslurm.cpus_per_task = 9\nlaunch.nproc_per_node = 2": {
			"job.toml:3:7: slurm.cpus_per_task: the job asks for 18 cores per node, but nodes of partition gpu have at most 16"},
		"slurm.nodes = 2\nslurm.overcommit = true\nlaunch.nproc_per_node = 17": nil,
		"slurm.nodes = 2\nslurm.time = \"3:00:00\"\nslurm.skip = [\"time\"]":   nil,
		"slurm.nodes = 2\nslurm.time = \"3:00:00\"\nslurm.extra = [\"-t10\"]":  nil,
		"slurm.nodes = 2\nlaunch.grace = \"90s\"": {
			`job.toml:3:8: launch.grace: it is "1m30s", but this cluster kills a job 30s after TERM (KillWait): ` +
				"if Slurm ends the job, workers have two thirds of that"},
	} {
		src := []byte("name = \"x\"\n" + text + "\nlaunch.command = [\"true\"]\n")
		for _, c := range []Cluster{cluster, unlimited} {
			_, warnings, err := (*Defaults)(nil).ParseWith("job.toml", "/jobs", src, nil,
				func(j *Job) []Remark { return j.LimitRemarks(0, c, nil) })
			if got := lines(warnings); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s\n: %v, %q, want %q", text, err, got, want)
			}
			want = nil // the next cluster has no limits
		}
	}

	job, _, err := parse("name = \"x\"\nslurm.nodes = 9\nlaunch.command = [\"true\"]\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := job.LimitRemarks(0, cluster, []string{"--time=1", "-N2"}); len(got) > 0 { // the command line overrides the job
		t.Errorf("nodes of the command line: %v", got)
	}
	down := unlimited
	down.Partition.State = "DOWN"
	if got := job.LimitRemarks(0, down, nil); len(got) != 1 ||
		got[0].Message != "slurm.partition: any is DOWN: the job waits until that changes" {
		t.Errorf("a partition that is down: %v", got)
	}
	missing := Cluster{Missing: errors.New("no such partition: \"x\"")}
	const want = `slurm.partition: no such partition: "x" on this cluster: "sinfo -s" lists the partitions`
	if got := job.LimitRemarks(0, missing, nil); len(got) != 1 || got[0].Message != want {
		t.Errorf("no partition: %v", got)
	}
}

// TestLimitsOfAComponent: a component may have its own partition. The limits of that partition apply to what the component asks for, and to
// what all components have in common.
func TestLimitsOfAComponent(t *testing.T) {
	job, _, err := parse("name = \"x\"\n[slurm]\ntime = \"3:00:00\"\npartition = \"a,b\"\n" +
		"[[slurm.component]]\nnodes = 9\npartition = \"gpu\"\n" +
		"[[slurm.component]]\n[launch]\ncommand = [\"true\"]\n")
	if err != nil {
		t.Fatal(err)
	}
	names, said := job.Partitions([]string{"-pc"})
	if !slices.Equal(names, []string{"a,b", "gpu", ""}) || !slices.Equal(said, []bool{false, true, true}) {
		t.Errorf("partitions %q, said %v", names, said)
	}
	gpu := slurm.Partition{
		Name: "gpu", State: "UP", MaxTime: 2 * time.Hour, MaxNodes: -1, MaxMem: -1, Nodes: 8, NodeCPUs: 4, NodeMem: -1, NodeGPUs: -1,
	}
	got := job.LimitRemarks(1, Cluster{Partition: gpu}, []string{"-N1", "-t1"})
	want := []Remark{
		{Key: "slurm.component", Message: "slurm.component 1: slurm.time: jobs of partition gpu run for at most 02:00:00: lower it; " +
			"slurm.chain spreads longer work over several jobs"},
		{Key: "slurm.component", Message: "slurm.component 1: slurm.nodes: the job asks for 9 nodes, but partition gpu has 8"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
