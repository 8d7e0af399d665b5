package sim

// Allocation is a pretend allocation on this machine.
type Allocation struct {
	JobID    int
	JobName  string
	Nodes    int // 1 to 254
	Restarts int // SLURM_RESTART_COUNT
	CPUs     int // per node
	WorkDir  string
}

// Name is the name of node i ("node1" for i = 0), Address its own: 127.0.0.(i+1).
func (a Allocation) Name(i int) string    { panic("stub") }
func (a Allocation) Address(i int) string { panic("stub") }

// Environ is what Slurm sets for the agent's task on node i (one task a node),
// the pretend addresses (DDPBATCH_SIM_ADDRS) included.
func (a Allocation) Environ(i int) []string { panic("stub") }
