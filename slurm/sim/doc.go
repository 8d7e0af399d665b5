// Package sim is a pretend Slurm allocation on this machine: what simulate gives its agents, so
// that the same code that reads a real step's variables (slurm.FromEnviron) reads these.
//
// Pretend node i is called node1, node2, ... and has the loopback address 127.0.0.(i+1), all of
// which Linux answers to without any set-up. There is one task on each node, the agent, as
// under `srun --ntasks-per-node=1`.
//
// The environment has the variables that Slurm 22.05 was seen to set for such a step, less those
// that would be untrue: credentials and ports of an srun that does not exist, accounts, users.
//
//	pretend := sim.Allocation{JobID: 1, JobName: "mnist", Nodes: 2, CPUs: 4, WorkDir: dir}
//	if err := pretend.Validate(); err != nil {
//		return err
//	}
//	kept, _ := slurm.Scrub(os.Environ())
//	agent.Env = append(kept, pretend.Environ(0)...)
//
// Step is a whole pretend srun: the same command on every pretend node.
package sim
