// Package pmi2 is the small part of PMI-2 by which the tasks of a step tell each other a few words before they have
// any connection of their own: under `srun --mpi=pmi2` each task inherits a connected socket to its
// slurmstepd, PMI_FD, and Slurm carries what one task puts to all others. There is no port to choose and nothing to guess.
//
//	client, err := pmi2.Open(os.LookupEnv)
//	if errors.Is(err, pmi2.ErrNone) { ... } // srun was called without --mpi=pmi2
//	defer client.Close()
//	text, err := client.FromZero(ctx, mine) // what task 0 said; all tasks must call it
//
// The wire: a first line each way that agrees on the version, and from then on messages that are six characters of
// decimal length and then words "key=value;" (PMI-2 wire protocol of MPICH; Slurm's mpi/pmi2 plugin). What Slurm 22.05 answers was tried:
// values of 4,000 bytes come back whole, but the headers of PMI-2 promise 1,023.
//
// A fence waits for every task of the step, and one that has died is never missed: every call needs a context that ends.
package pmi2
