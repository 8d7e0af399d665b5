// Package mpi joins processes into groups whose ranks exchange and combine buffers.
//
// A process joins a group and gets a [Comm]. Every rank then calls the same collectives in the same order:
//
//	comm, err := mpi.InitEnv(ctx, os.LookupEnv, mpi.DefaultConfig(), log)
//	...
//	err = mpi.AllReduce(ctx, comm, gradients, mpi.Sum) // the error names the rank at fault
//	...
//	return errors.Join(err, comm.Close())
//
// # Forming a group
//
//   - [InitEnv]: from the environment variables that ddpbatch and torchrun set for their workers
//   - [InitMethod]: from a URL, tcp://host:port or file:///path, as in torch.distributed
//   - [Init]: through any store of package mpi/store
//   - [InitLocal]: of goroutines of one process, for tests
//   - [Self]: of this rank alone
//
// [Config] says how ranks communicate, and [InitConfig] who they are. Ranks that ddpbatch did not start share a [Secret].
// [Comm.Rank], [Comm.Size], [Comm.Ranks], [Comm.Backend], [Comm.IsInitialized] and [Comm.Err] describe a group, and [Comm.Close] leaves it.
// [Comm.Split], [Comm.Group] and [Comm.Dup] make groups of its ranks, and [Comm.Shrink] makes one of the ranks that are left after a
// failure.
//
// # Collectives
//
//   - combine the ranks' buffers: [AllReduce], [Reduce], [ReduceScatter], [Scan], [Exscan]
//   - move them: [Broadcast], [AllGather], [Gather], [Scatter], [AllToAll]
//   - wait for all ranks: [Comm.Barrier], [Comm.MonitoredBarrier]
//
// Functions whose name ends with V, such as [AllGatherV], allow blocks of different lengths. Functions whose name begins with I, such as
// [IAllReduce], do not block; they return a [Request] to wait for. Functions whose name ends with Many, such as [AllReduceMany], take
// several buffers at once. Elements are of a [Number] type, which includes [Float16] and [BFloat16]. Reductions combine them by an [Op]:
// [Sum], [Avg], [Min], [Max], [Product], [BAnd], [BOr], [BXor], [PreMulSum], or one that [NewOp] makes from a function.
//
// [BroadcastObject], [AllGatherObject], [GatherObject] and [ScatterObject] send values of any type, as JSON. [BroadcastBytes] and
// [GatherBytes] send bytes whose lengths the receivers do not know.
//
// [Agree] makes an error of one rank an error of all ranks. [FromRoot] gives all ranks what a function on one of them returns, including
// its error.
//
// # Messages
//
// [Send], [Recv], [ISend] and [IRecv] exchange buffers between two ranks. Tags tell messages apart. Messages and collectives do not
// disturb each other.
//
// # How data travels
//
// Ranks of one machine that share memory work in that memory; they read and write each other's buffers from [Alloc] in place. Other ranks
// exchange messages. The algorithm depends on the collective, the length and the number of ranks: Init fits a model to measured times,
// and each call uses the algorithm that the model predicts to be the fastest. [Comm.Explain] shows the predictions, and [Comm.Using] names
// an algorithm.
//
// # Guarantees
//
// A reduction gives the same bits on every rank. Under Config.Deterministic, the default, the bits depend on the ranks' inputs alone. They
// do not depend on the length of the buffer, on how the data is split into calls, on the algorithm, on the transport or on the run: see
// [AllReduce].
//
// If ranks call different collectives, or the same collective with another length, type, operation or root, they get an error that shows
// both calls, in that call or in the next one.
//
// A rank returns before the others have made the call if it needs nothing from them: the root of a [Broadcast] or [Scatter], the other
// ranks of a [Reduce] or [Gather], and rank 0 of a [Scan] or [Exscan]. It hears from the ranks that it exchanges data with in its next
// call, or in [Comm.Close], which then returns their error. So a rank is at most one call ahead of them.
//
// If a rank's process dies, the other ranks get an error at once. If a rank keeps the others waiting, they get an error after
// Config.Timeout that says what it did last. A collective ends at once when its context ends. After an error the Comm is broken on every
// rank, and only Shrink and Close are left. The errors are [ErrMismatch], [ErrTimeout], [ErrLost] and the others below. The flight recorder
// has the last operations before a failure: see [Comm.WriteFlight], or the file that InitConfig.Flight names.
//
// In steady state, blocking calls on one buffer, and messages, do not allocate.
//
// # Conventions
//
// The caller owns the buffers; a collective uses them until it returns or its Request is done. A wrong argument of a collective breaks the
// Comm as any failure does, because the other ranks may already have begun. Ranks exchange elements as they lie in memory. All machines
// must be little-endian: Init returns an error on any other.
//
// # Limits
//
// Control messages are encrypted. Data is encrypted only with Config.Encrypt.
// Between machines, a pair of ranks has one TCP connection for control, and up to four for data or as many as Config.Streams says.
package mpi
