package slurm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Partition describes the limits of a partition, and what its nodes have. A count is -1 if Slurm sets no limit, or does not say.
type Partition struct {
	Name     string
	State    string        // "UP", "DOWN", "DRAIN", "INACTIVE"
	MaxTime  time.Duration // Unlimited if there is no limit
	MinNodes int           // of a job
	MaxNodes int           // of a job
	MaxMem   int           // MiB of a node that a job may have
	Nodes    int           // in the partition

	// The most that any one of its nodes has.
	NodeCPUs, NodeMem, NodeGPUs int
}

// ErrNoPartition means that the cluster does not have the partition, or has no default partition.
var ErrNoPartition = errors.New("no such partition")

// Partition asks for a partition by its name; "" is the default partition. It runs two commands, whose answers do
// not grow with the number of nodes.
func (c *Client) Partition(ctx context.Context, name string) (Partition, error) {
	if err := checkWord(name); err != nil || strings.HasPrefix(name, "-") {
		return Partition{}, fmt.Errorf("ask for a partition: %s is not a name of a partition", clip(name))
	}
	out, err := c.ask(ctx, "scontrol", "-a", "-o", "show", "partition") // -a: hidden partitions, too
	if err != nil {
		return Partition{}, fmt.Errorf("ask for the partitions: %w", err)
	}
	p, err := findPartition(out, name)
	if err != nil {
		return Partition{}, err
	}
	out, err = c.ask(ctx, "sinfo", "-h", "-e", "-p", p.Name, "-o", "%c"+separator+"%m"+separator+"%G") // a line for each kind of node
	if err != nil {
		return Partition{}, fmt.Errorf("ask for the nodes of partition %s: %w", p.Name, err)
	}
	p.addNodes(out)
	return p, nil
}

// findPartition reads the line of one partition in the output of "scontrol show partition -o".
func findPartition(stdout []byte, name string) (Partition, error) {
	for line := range strings.Lines(string(stdout)) {
		fields := map[string]string{}
		for field := range strings.FieldsSeq(line) {
			key, value, _ := strings.Cut(field, "=")
			fields[key] = value
		}
		own := fields["PartitionName"]
		if own == "" || own != name && (name != "" || fields["Default"] != "YES") {
			continue
		}
		p := Partition{
			Name: own, State: fields["State"], MaxTime: Unlimited,
			MinNodes: limitOf(fields["MinNodes"]), MaxNodes: limitOf(fields["MaxNodes"]), MaxMem: limitOf(fields["MaxMemPerNode"]),
			Nodes: limitOf(fields["TotalNodes"]), NodeCPUs: -1, NodeMem: -1, NodeGPUs: -1,
		}
		if limit, err := ParseTime(fields["MaxTime"]); err == nil {
			p.MaxTime = limit
		}
		return p, nil
	}
	if name == "" {
		return Partition{}, fmt.Errorf("%w: the cluster has no default partition", ErrNoPartition)
	}
	return Partition{}, fmt.Errorf("%w: %s", ErrNoPartition, clip(name))
}

// limitOf parses a count as scontrol prints it: "4", "UNLIMITED". It returns -1 if it is not a number.
func limitOf(text string) int {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return -1
	}
	return int(n)
}

// addNodes reads the kinds of nodes that sinfo prints, one a line. A + after a number means that some nodes of the line have more, so the
// number is not a limit.
func (p *Partition) addNodes(stdout []byte) {
	var cpus, mem, gpus []int
	for line := range strings.Lines(string(stdout)) {
		f := strings.Split(strings.TrimSpace(line), separator)
		if len(f) != len("cmG") {
			continue
		}
		cpus, mem, gpus = append(cpus, limitOf(f[0])), append(mem, limitOf(f[1])), append(gpus, countGPUs(f[2]))
	}
	p.NodeCPUs, p.NodeMem, p.NodeGPUs = largest(cpus), largest(mem), largest(gpus)
}

// largest returns the largest of counts, or -1 if one is unknown or there are none.
func largest(counts []int) int {
	most := -1
	for _, n := range counts {
		if n < 0 {
			return -1
		}
		most = max(most, n)
	}
	return most
}

// gpuForm matches a node's generic resource gpu: "gpu:2", "gpu:a100:4(S:0-1)", "gpu:tesla:4(IDX:0-3)".
var gpuForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?:^|,)gpu(?::[^:,()]*[^:,()0-9][^:,()]*)?:([0-9]+)`)
})

// countGPUs adds up the GPUs of a node's generic resources, as sinfo writes them.
func countGPUs(gres string) int {
	total := 0
	for _, m := range gpuForm().FindAllStringSubmatch(gres, -1) {
		n := limitOf(m[1])
		if n < 0 {
			return -1
		}
		total += n
	}
	if total == 0 && strings.Contains(gres, "gpu") {
		return -1 // in an unknown form
	}
	return total
}
