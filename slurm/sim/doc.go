// Package sim is a pretend Slurm on this machine, for simulate and rehearse: an allocation, an srun, the part of the controller
// that signals jobs, and faults.
//
// Pretend nodes are called node1, node2, ... unless the caller names them. Node i, from 0, has the loopback address
// 127.0.0.(i+1); Linux answers to all of these without any set-up. There is one task on each node, the agent, as under `srun
// --ntasks-per-node=1`, or as many as Allocation.Tasks says.
//
// The environment has the variables that Slurm 22.05 or 25.11 ([Release]) was seen to set for such a step, except those
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
// A [Controller] sends the signals that Slurm sends when a job is canceled, preempted, requeued or at its time limit. An [Injector]
// injects each fault when its time comes. Two kinds of faults, a partition and a full disk, need [Namespaces].
package sim
