package sim

import (
	"fmt"
	"strconv"
)

// MaxNodes is the most pretend nodes there can be: one for each address of 127.0.0.0/24 less its
// first and its last.
const MaxNodes = 254

// Allocation is a pretend allocation on this machine. It is plain data; its methods may be called
// from several goroutines.
type Allocation struct {
	JobID    int    // from 1
	JobName  string // may be empty
	Nodes    int    // 1 to MaxNodes
	Restarts int    // times the pretend job was requeued before
	CPUs     int    // per node; 0: unknown
	WorkDir  string // what sbatch's working directory would be
}

// Validate says what is wrong with the numbers. The other methods want a valid allocation.
func (a Allocation) Validate() error {
	switch {
	case a.Nodes < 1 || a.Nodes > MaxNodes:
		return fmt.Errorf("simulate %d nodes: it must be 1 to %d", a.Nodes, MaxNodes)
	case a.JobID < 1:
		return fmt.Errorf("simulate job %d: a job id is 1 or more", a.JobID)
	case a.Restarts < 0:
		return fmt.Errorf("simulate restart %d: it must not be negative", a.Restarts)
	case a.CPUs < 0:
		return fmt.Errorf("simulate %d CPUs a node: it must not be negative", a.CPUs)
	}
	return nil
}

const badNode = "sim: node out of range"

// Name is the name of node i, counted from 0: "node1" for i = 0. It panics where i is not below Nodes.
func (a Allocation) Name(i int) string {
	a.check(i)
	return "node" + strconv.Itoa(i+1)
}

// Address is the loopback address of node i: 127.0.0.1 for i = 0. It panics where i is not below
// Nodes.
func (a Allocation) Address(i int) string {
	a.check(i)
	return "127.0.0." + strconv.Itoa(i+1)
}

func (a Allocation) check(i int) {
	if i < 0 || i >= a.Nodes || i >= MaxNodes {
		panic(badNode)
	}
}
