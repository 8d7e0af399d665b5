// Package mpi joins processes into a group whose ranks exchange and combine
// buffers.
//
// [Init] meets the other ranks at a store and returns a [Comm]; [InitEnv] does it by the
// environment that ddpbatch and torchrun give their workers. Every rank then calls the same
// collectives in the same order:
//
//	comm, err := mpi.InitEnv(ctx, os.LookupEnv, mpi.DefaultConfig(), log)
//	...
//	defer comm.Close()
//	if err := mpi.AllReduce(ctx, comm, gradients, mpi.Sum); err != nil {
//		return err // names the rank at fault
//	}
//
// # Guarantees
//
// A result has the same bits on every rank, and in every run with the same
// inputs, length and number of ranks.
//
// Ranks that call different collectives, or the same with another length, type, operation or
// root, get an error that shows both calls, within a round trip of the later one.
// A rank whose process dies is an error on the others at once; one that keeps the
// others waiting is one after Config.Timeout; and a collective ends at once
// with its context. After an error the Comm is broken on every rank.
//
// In steady state a collective allocates nothing.
//
// # Conventions
//
// Buffers are the caller's; a collective works on them in place and lets go of them when
// it returns. Arguments that are wrong break the Comm as any failure does.
// Ranks exchange elements as they lie in memory: all machines are
// little-endian, and Init refuses to run on another.
//
// # Limits
//
// There are all-reduce, broadcast and barrier, over one TCP connection for each
// pair of ranks. An error that says a rank was waited for names the neighbour that
// did not send; behind it may be another that kept this one waiting. Nothing
// on the wire is encrypted.
package mpi
