// Package mpi joins processes into groups whose ranks exchange and combine
// buffers.
//
// A rank joins the others, which gives it a [Comm]. Every rank then calls the same collectives in the same order:
//
//	comm, err := mpi.InitEnv(ctx, os.LookupEnv, mpi.DefaultConfig(), log)
//	...
//	err = mpi.AllReduce(ctx, comm, gradients, mpi.Sum) // the error names the rank at fault
//	...
//	return errors.Join(err, comm.Close())
//
// # Forming a group
//
//   - [InitEnv]: by the environment that ddpbatch and torchrun give their workers
//   - [InitMethod]: by a word, tcp://host:port or file:///path, as of torch.distributed
//   - [Init]: by any store of package mpi/store
//   - [InitLocal]: of goroutines of one process, for tests
//   - [Self]: of this rank alone
//
// [Config] says how ranks communicate, and [InitConfig] who they are. Ranks that were not started by ddpbatch share a [Secret].
// [Comm.Rank], [Comm.Size], [Comm.Ranks], [Comm.Backend], [Comm.IsInitialized] and [Comm.Err] ask a group, and [Comm.Close] leaves it.
// [Comm.Split], [Comm.Group] and [Comm.Dup] make groups of its ranks, and [Comm.Shrink] one of those that are left after a failure.
//
// # Collectives
//
//   - combine the ranks' buffers: [AllReduce], [Reduce], [ReduceScatter], [Scan], [Exscan]
//   - move them: [Broadcast], [AllGather], [Gather], [Scatter], [AllToAll]
//   - wait for all ranks: [Comm.Barrier], [Comm.MonitoredBarrier]
//
// Those whose name ends with V, such as [AllGatherV], have blocks of different lengths. Those that begin with I, such as [IAllReduce],
// go on by themselves, and return a [Request] to wait for. Those that end with Many, such as [AllReduceMany], take several buffers at
// once. Elements are of a [Number] type, [Float16] and [BFloat16] among them. Reductions combine them by an [Op]: [Sum], [Avg], [Min],
// [Max], [Product], [BAnd], [BOr], [BXor], [PreMulSum], or one that [NewOp] makes of a function.
//
// Values of any type travel as JSON: [BroadcastObject], [AllGatherObject], [GatherObject], [ScatterObject]. Bytes of lengths that the
// receivers do not know: [BroadcastBytes], [GatherBytes].
//
// [Agree] makes an error of one rank one of all, and [FromRoot] gives all ranks what a function on one of them returns, its error included.
//
// # Messages
//
// [Send], [Recv], [ISend] and [IRecv] exchange buffers between two ranks, by tags. They and the collectives do not disturb each other.
//
// # How it goes
//
// Ranks of one machine that share memory work in that memory; buffers from [Alloc] are read and written by the others
// where they are. Other ranks exchange messages, by an algorithm that is chosen for the collective, the
// length and the number of ranks: the one that a model, fitted while the group forms, predicts to be fastest. [Comm.Explain] shows the
// predictions, and [Comm.Using] names an algorithm.
//
// # Guarantees
//
// A reduction has the same bits on every rank. Under Config.Deterministic, the default, they depend on the ranks' inputs alone, not on
// the length of the buffer, on how it is cut into calls, on the algorithm, the transport or the run: see [AllReduce].
//
// Ranks that call different collectives, or the same with another length, type, operation or
// root, get an error that shows both calls, in that call or in the next one. A rank that needs nothing more of the others returns
// before they have come: the root of a [Broadcast] or [Scatter], the others of a [Reduce] or [Gather], rank 0 of a [Scan] or [Exscan]. It
// hears from those with which it exchanges data in its next call, or in [Comm.Close], which then has the error: it is ahead of them by one
// call at most.
// A rank whose process dies is an error on the others at once; one that keeps the
// others waiting is one after Config.Timeout, and the error says what it last did; and a collective ends at once
// with its context. After an error the Comm is broken on every rank: what is left is Shrink or Close. The errors are [ErrMismatch],
// [ErrTimeout], [ErrLost] and the others below. The last operations before a failure are in the flight recorder:
// [Comm.WriteFlight], or the file that InitConfig.Flight names.
//
// In steady state blocking calls on one buffer, and messages, allocate nothing.
//
// # Conventions
//
// Buffers are the caller's; a collective lets go of them when it returns, or its Request is done. Arguments of collectives that are wrong
// break the Comm as any failure does, as the other ranks may have begun. Ranks exchange elements as they lie in memory: all machines are
// little-endian, and Init refuses to run on another.
//
// # Limits
//
// Control messages are encrypted. Data is encrypted only with Config.Encrypt.
// Between machines a pair of ranks has one TCP connection for control and up to four for data, or as many as Config.Streams says.
package mpi
