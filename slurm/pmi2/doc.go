// Package pmi2 implements the small part of PMI-2 by which the tasks of a step exchange a short text before they have
// any connection of their own. Under `srun --mpi=pmi2` each task inherits a socket, PMI_FD, that is connected to its
// slurmstepd, and Slurm carries what one task puts to all others. So the tasks need not agree on a port.
//
//	client, err := pmi2.Open(os.LookupEnv)
//	if errors.Is(err, pmi2.ErrNone) { ... } // srun was called without --mpi=pmi2
//	defer client.Close()
//	text, err := client.FromZero(ctx, mine) // what task 0 said; all tasks must call it
//
// The wire protocol (that of MPICH; Slurm's mpi/pmi2 plugin): each side sends a first line to agree on the version. After that a message
// is six characters of decimal length and then words "key=value;". Slurm 22.05 was seen to return
// values of 4,000 bytes unchanged, but the headers of PMI-2 promise only 1,023.
//
// A fence waits for every task of the step, even for one that has died: every call needs a context that ends.
package pmi2
