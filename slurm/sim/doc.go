// Package sim is a pretend Slurm on this machine, for simulate and rehearse: an allocation, an srun, the part of the controller
// that signals jobs, and faults.
//
// Pretend node i is called node1, node2, ..., or as its user likes, and has the loopback address 127.0.0.(i+1), all of
// which Linux answers to without any set-up. There is one task on each node, the agent, as under `srun
// --ntasks-per-node=1`, or as many as Allocation.Tasks says.
//
// The environment has the variables that Slurm 22.05 or 25.11 ([Release]) was seen to set for such a step, less those
// that would be untrue: credentials and ports of an srun that does not exist, accounts, users.
//
//	pretend := sim.Allocation{JobID: 1, JobName: "mnist", Nodes: sim.PretendNodes(2), CPUs: []int{4}, WorkDir: dir}
//	step, err := sim.Step{Allocation: pretend, Command: command, Environ: kept, Output: output}.Start()
//	if err != nil {
//		return err
//	}
//	defer step.Close()
//	<-step.Ended()
//	code := step.Code()
//
// A [Controller] sends what Slurm sends when a job is cancelled, preempted, requeued or at its time limit. An [Injector] waits for
// the moments of faults, and injects them. Two of them, a partition and a full disk, need [Namespaces].
package sim
