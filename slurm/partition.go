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

// Partition is what a job may ask of a partition, and what its nodes have. Counts are -1 where Slurm sets no limit, or does not say.
type Partition struct {
	Name     string
	State    string        // "UP", "DOWN", "DRAIN", "INACTIVE"
	MaxTime  time.Duration // Unlimited: none
	MinNodes int           // of a job
	MaxNodes int           // of a job
	MaxMem   int           // MiB of a node that a job may have
	Nodes    int           // in the partition

	// The most that any one of its nodes has.
	NodeCPUs, NodeMem, NodeGPUs int
}

// ErrNoPartition: the cluster has no partition of that name, or none that jobs go to by themselves.
var ErrNoPartition = errors.New("there is no such partition")

// Partition asks for one partition, by its name; "" is the one that jobs go to which name none. It takes two commands, whose answers do
// not grow with the number of nodes.
func (c *Client) Partition(ctx context.Context, name string) (Partition, error) {
	if err := checkWord(name); err != nil || strings.HasPrefix(name, "-") {
		return Partition{}, fmt.Errorf("ask for a partition: %s is no name", clip(name))
	}
	out, err := c.ask(ctx, "scontrol", "-a", "-o", "show", "partition") // the hidden ones, too
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
		return Partition{}, fmt.Errorf("%w: none that jobs go to which name none", ErrNoPartition)
	}
	return Partition{}, fmt.Errorf("%w: %s", ErrNoPartition, clip(name))
}

// limitOf reads a count of scontrol's: "4", "UNLIMITED".
func limitOf(text string) int {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return -1
	}
	return int(n)
}

// addNodes reads what kinds of nodes sinfo tells of. A + after a number means that nodes of the line have more, so that it is no limit.
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

// largest is the largest of some counts; -1 where one is not known, or there are none.
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

// gpuForm is a node's generic resource gpu: "gpu:2", "gpu:a100:4(S:0-1)", "gpu:tesla:4(IDX:0-3)".
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
		return -1 // in a form that is not known
	}
	return total
}
