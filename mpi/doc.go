// Package mpi joins processes into groups whose ranks exchange and combine
// buffers.
//
// [Init] meets the other ranks at a store and returns a [Comm]; [InitEnv] does it by the
// environment that ddpbatch and torchrun give their workers, [InitMethod] by a word such as tcp://host:port, and [InitLocal] within one
// process. Every rank then calls the same collectives in the same order:
//
//	comm, err := mpi.InitEnv(ctx, os.LookupEnv, mpi.DefaultConfig(), log)
//	...
//	defer comm.Close()
//	if err := mpi.AllReduce(ctx, comm, gradients, mpi.Sum); err != nil {
//		return err // names the rank at fault
//	}
//
// There are all-reduce, reduce, broadcast, all-gather, gather, scatter, reduce-scatter, all-to-all, scan and barrier, most of them
// also with blocks of different lengths (…V) and as requests that go on by themselves (I…); messages from rank to rank ([Send],
// [Recv]); values as JSON ([AllGatherObject], …); and further groups of the same ranks ([Comm.Split], [Comm.Group], [Comm.Shrink]).
//
// # How it goes
//
// Ranks of one machine that share memory work in that memory; buffers from [Alloc] are read and written by the others
// where they are, and others are copied once. Other ranks exchange messages, by an algorithm that is chosen for the collective, the length and the
// number of ranks: the one that a model, fitted while the group forms, predicts to be fastest. [Comm.Explain] shows the
// predictions, and [Comm.Using] names an algorithm.
//
// # Guarantees
//
// A reduction has the same bits on every rank. Under Config.Deterministic, the default, they depend on the ranks' inputs alone, not on
// the length of the buffer, on how it is cut into calls, on the algorithm, the transport or the run: see [AllReduce].
//
// Ranks that call different collectives, or the same with another length, type, operation or
// root, get an error that shows both calls, within a round trip of the later one.
// A rank whose process dies is an error on the others at once; one that keeps the
// others waiting is one after Config.Timeout, and the error says what it last did; and a collective ends at once
// with its context. After an error the Comm is broken on every rank: what is left is Shrink or Close.
//
// In steady state blocking calls on one buffer, and messages, allocate nothing.
//
// # Conventions
//
// Buffers are the caller's; a collective lets go of them when
// it returns, or its Request is done. Arguments of collectives that are wrong break the Comm as any failure does, as the other ranks may have begun.
// Ranks exchange elements as they lie in memory: all machines are
// little-endian, and Init refuses to run on another.
//
// # Limits
//
// Control messages are encrypted. Data is encrypted only with Config.Encrypt.
// Between machines a pair of ranks has one TCP connection for control and up to four for data, or as many as Config.Streams says.
package mpi
