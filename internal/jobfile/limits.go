package jobfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	words "ddpbatch/internal/text"
	"ddpbatch/mpi/launch"
	"ddpbatch/slurm"
)

// A Cluster describes a cluster that a job may go to.
type Cluster struct {
	Partition slurm.Partition
	Missing   error         // why there is no Partition; nil: there is one
	KillWait  time.Duration // 0: unknown
}

// Partitions returns the partitions that the components of the job go to, one for each of Parts, "" for the default one. said is false if
// the job's own key does not decide: sbatch gets the partition in another way, or there are several. options are further words of sbatch's
// command line, which concern component 0.
func (j *Job) Partitions(options []string) (names []string, said []bool) {
	for i, part := range j.Parts() {
		words := part.Slurm.Extra
		if i == 0 {
			words = slices.Concat(words, options)
		}
		name, given := part.Slurm.Get("partition")
		isElsewhere := slices.ContainsFunc(words, func(word string) bool { return slurm.Sets(word, "partition") })
		names = append(names, name)
		said = append(said, !isElsewhere && !strings.Contains(name, ",") && (!given || !part.Slurm.Skips("partition")))
	}
	return names, said
}

// LimitRemarks reports what one component of a job, an index into Parts, asks for beyond the limits of its partition, or that no node of it
// has. options are further words of sbatch's command line, which override the job's keys; Slurm checks what they ask for.
func (j *Job) LimitRemarks(index int, cluster Cluster, options []string) []Remark {
	parts := j.Parts()
	part := parts[index]
	if index == 0 {
		return part.limitRemarks(cluster, options)
	}
	for _, name := range []string{"mem", "time"} { // a component inherits these from the one before it
		for _, before := range slices.Backward(parts[:index]) {
			if value, given := before.Slurm.Get(name); given {
				part.Slurm.List = append([]slurm.Option{{Name: name, Value: value}}, part.Slurm.List...)
				break
			}
		}
	}
	remarks := part.limitRemarks(cluster, nil)
	for i := range remarks {
		r := &remarks[i]
		r.Key, r.Message = "slurm.component", fmt.Sprintf("slurm.component %d: %s", index, r.Message)
	}
	return remarks
}

func (j *Job) limitRemarks(cluster Cluster, options []string) []Remark {
	l := limits{job: j, words: slices.Concat(j.Slurm.Extra, options)}
	if cluster.Missing != nil {
		l.add("slurm.partition", "%v on this cluster: \"sinfo -s\" lists the partitions", cluster.Missing)
		return l.found
	}
	l.partition(cluster.Partition)
	l.nodes(cluster.Partition)
	if grace := j.Launch.Grace; cluster.KillWait > 0 && grace > cluster.KillWait && grace != launch.DefaultConfig().Grace {
		l.add("launch.grace", "it is \"%v\", but this cluster kills a job %v after TERM (KillWait): if Slurm ends the job, "+
			"workers have two thirds of that", grace, cluster.KillWait)
	}
	return l.found
}

// limits collects remarks about what is beyond a limit.
type limits struct {
	job   *Job
	words []string
	found []Remark
}

func (l *limits) add(key, format string, args ...any) {
	l.found = append(l.found, Remark{Key: key, Message: key + ": " + fmt.Sprintf(format, args...)})
}

// value returns the value of an option in the job. ok is false if the job does not set it, or something else overrides it.
func (l *limits) value(key string) (value string, ok bool) {
	value, ok = l.job.Slurm.Get(key)
	return value, ok && l.judged(key)
}

// judged reports whether the job's own keys decide the value of an option.
func (l *limits) judged(key string) bool {
	return !l.job.Slurm.Skips(key) && !slices.ContainsFunc(l.words, func(word string) bool { return slurm.Sets(word, key) })
}

// partition checks the job against the partition's limits for jobs.
func (l *limits) partition(p slurm.Partition) {
	if p.State != "" && p.State != "UP" {
		l.add("slurm.partition", "%s is %s: the job waits until that changes", p.Name, p.State)
	}
	if value, ok := l.value("time"); ok {
		if limit, err := slurm.ParseTime(value); err == nil && limit > p.MaxTime && p.MaxTime > 0 {
			l.add("slurm.time", "jobs of partition %s run for at most %s: lower it; slurm.chain spreads longer work over several jobs",
				p.Name, slurm.FormatTime(p.MaxTime))
		}
	}
	if !l.judged("nodes") {
		return
	}
	n := l.job.LeastNodes() // Slurm gives more if it can
	switch {
	case p.Nodes >= 0 && n > p.Nodes:
		l.add("slurm.nodes", "the job asks for %d nodes, but partition %s has %d", n, p.Name, p.Nodes)
	case p.MaxNodes >= 0 && n > p.MaxNodes:
		l.add("slurm.nodes", "the job asks for %d nodes, but a job of partition %s may have at most %d", n, p.Name, p.MaxNodes)
	case l.job.Nodes() < p.MinNodes:
		l.add("slurm.nodes", "the job asks for %s, but a job of partition %s must have at least %d",
			words.Plural(l.job.Nodes(), "node"), p.Name, p.MinNodes)
	}
}

// nodes checks the job against what a single node of the partition has.
func (l *limits) nodes(p slurm.Partition) {
	_, overcommit := l.job.Slurm.Get("overcommit")
	perRank := max(1, l.job.CPUsPerRank())
	cpus := perRank * l.job.MaxNproc()
	if !l.judged("cpus_per_task") || !l.judged("mincpus") || !l.judged("overcommit") || overcommit {
		cpus = 0
	}
	key, gpus := l.gpus()
	l.memory(p, "mem", 1, "a node")
	l.memory(p, "mem_per_cpu", cpus, "for each of "+words.Plural(cpus, "core")+" of a node")
	l.memory(p, "mem_per_gpu", gpus, "for each of "+words.Plural(gpus, "GPU")+" of a node")
	if n := gpus; n > 0 && p.NodeGPUs >= 0 && n > p.NodeGPUs {
		l.add(key, "the job asks for %s per node, but nodes of partition %s have at most %d", words.Plural(n, "GPU"), p.Name, p.NodeGPUs)
	}
	if n, nodes := l.allGPUs(), l.job.Nodes(); p.NodeGPUs >= 0 && n > p.NodeGPUs*nodes && l.judged("nodes") {
		l.add("slurm.gpus", "the job asks for %s on %s, but nodes of partition %s have at most %d", words.Plural(n, "GPU"),
			words.Plural(nodes, "node"), p.Name, p.NodeGPUs)
	}
	if p.NodeCPUs >= 0 && cpus > p.NodeCPUs {
		key := "launch.nproc_per_node"
		if perRank > 1 {
			key = "slurm.cpus_per_task"
		}
		l.add(key, "the job asks for %s per node, but nodes of partition %s have at most %d",
			words.Plural(cpus, "core"), p.Name, p.NodeCPUs)
	}
}

// memory checks the memory that an option asks for n times on a node against what a job may have of a node.
func (l *limits) memory(p slurm.Partition, name string, n int, what string) {
	value, ok := l.value(name)
	most := p.NodeMem
	if p.MaxMem >= 0 && (most < 0 || p.MaxMem < most) {
		most = p.MaxMem
	}
	size, err := slurm.ParseSize(value)
	if ok && err == nil && most >= 0 && n > 0 && size > int64(most)<<20/int64(n) {
		l.add("slurm."+name, "the job asks for %s %s, but nodes of partition %s give a job at most %dM", value, what, p.Name, most)
	}
}

// gpus returns how many GPUs of each node the job asks for, and by which key.
func (l *limits) gpus() (key string, n int) {
	if value, ok := l.value("gpus_per_node"); ok {
		return "slurm.gpus_per_node", gpuCount(value)
	}
	if value, ok := l.value("gres"); ok && strings.HasPrefix(value, "gpu:") && !strings.Contains(value, ",") {
		return "slurm.gres", gpuCount(value)
	}
	if value, ok := l.value("gpus_per_task"); ok && l.job.Launch.Mode == "task" {
		return "slurm.gpus_per_task", gpuCount(value) * l.job.MaxNproc()
	}
	return "", 0
}

// allGPUs returns how many GPUs the job asks for on all of its nodes together, or 0 if it does not ask in this way.
func (l *limits) allGPUs() int {
	value, ok := l.value("gpus")
	if !ok {
		return 0
	}
	return gpuCount(value)
}

// gpuCount returns the number in "4", "a100:4" and "gpu:a100:4", or 0 if there is none.
func gpuCount(value string) int {
	n, _ := strconv.Atoi(value[strings.LastIndexByte(value, ':')+1:])
	return n
}
