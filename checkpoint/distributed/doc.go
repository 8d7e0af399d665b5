// Package distributed saves the state of all ranks of a job as one checkpoint, while training goes on, and resumes it
// with any number of ranks.
//
// A Saver knows the arrays of its rank. New divides the work. What several ranks hold alike (in plain data parallelism, everything)
// is split over these ranks by bytes, so that each of n ranks writes an n-th. What only one rank
// holds is written by that rank. A rank that gets no bytes, such as most of many ranks with a small state, writes no shard
// and only reports that it is done. Save copies this rank's part into a buffer; after that training may change the
// arrays. In the background each rank encodes and writes its own shard. When all are durable, rank 0 commits the checkpoint and
// notifies the others.
//
// Every rank calls New, then Resume (or Begin, to start without a checkpoint), then Save after each step that is to be kept, Wait before it
// relies on the last save, and Close.
//
// # Guarantees
//
//   - Only rank 0 commits a checkpoint, after every rank has reported, by message, that its shard is durable. No
//     rank looks at the file system to learn how far another is.
//   - An error of one rank is returned on every rank: by the same call, with the same sentinel for errors.Is,
//     and with the rank in its text. Nothing of a failed save stays, unless the commit may have happened after
//     all.
//   - At most one save is in flight; the next Save waits for it. With Options.Async a Save takes that wait and the time for one
//     copy of this rank's part.
//   - New reserves the buffers, and they never grow: one copy of this rank's part, two with deltas. If
//     Options.MaxMemory does not allow that, all ranks save synchronously, directly from the live arrays.
//   - Rank 0 alone chooses what to resume from, and the base of a delta. If any rank finds a checkpoint
//     corrupt, it is rejected, and all ranks try the one before it; an error that is not about damage ends Resume
//     instead of losing work.
//   - When a context is done or a rank dies, all calls return with an error, provided that the Group's methods do. Close
//     waits until every goroutine has ended.
//
// # Rounds
//
// No collective waits for a disk, so none exceeds a communicator's timeout. In New, Resume and Begin, work that may wait for a disk
// runs beside exchanges of the ranks at every tick of 2 s. While a save is in flight the ranks
// exchange in rounds: each reports its state, and rank 0 decides for all. A rank that has news, or
// nothing to do, enters the next round at once; one that is still busy enters it at its tick. So a commit follows the last shard at once.
//
// # Deltas
//
// With Options.Delta = k each full checkpoint is followed by up to k that hold the XOR with it. The base stays in
// memory and is not read from disk. The first save of a Saver is full, and so is the save after one that failed.
//
// # Node-local tier
//
// With Options.Local a shard is first written to a disk of the node, durably, with a record of what it belongs to; the
// buffer is then free for the next Save. From there it is copied to the shared folder in the background, one
// checkpoint at a time, the newest first; a save that a newer one has overtaken is dropped. A save is committed
// only once it has reached the shared folder. Wait waits for that, and only then does the save survive the loss of several nodes.
//
// With Options.Peers, too, each shard is copied to the disk of one other node as soon as it is on its own node's disk, and stays
// there as long: so a save that is only on the nodes' disks survives the loss of any one node. Copies go directly from
// rank to rank, outside the rounds, and nothing waits for them. Each save uses the network and the other disk once more.
// A copy that fails is given up.
//
// If a job dies before its saves are flushed, Resume of the next attempt finds the shards that are complete over all nodes, whichever
// ranks now run there, and commits them first, if they are newer than what is in the shared folder and no attempt has resumed
// from an earlier step since. If a shard is damaged its replica is used. A save with shards that are damaged or missing
// everywhere is skipped, and rank 0 logs which shards; a disk that cannot be searched ends Resume, because it may hold a save
// that was acknowledged. Begin gives up all of these saves.
//
// A node's disk needs room for at most four saves at a time: the newest one that could not be committed, the one that
// is being flushed, the newest complete one, and the one that is being written; and for as many of another node's
// with replicas. When everything has been committed, nothing stays there. A job that dies leaves its files; a later
// attempt of the run removes them once it has saved on that node, or has nothing to save there. Rank 0 writes a shard
// there even if it has no bytes, because the record beside it holds what goes into the manifest.
//
// If a local disk does not accept a shard, the shard is written to the shared folder directly, with a warning. If a disk fails after it has
// accepted a shard and before the shard is flushed, the save is lost: a newer save in flight takes its place, with a warning; without
// one, the save fails on all ranks.
//
// The run's folder below Options.Local belongs to this user alone, and is held open from New on. Options.Local and each folder
// above it must belong to the user or root, and must not let anybody else rename what is in it (/tmp, with mode
// 1777, does not), unless a folder above lets nobody else in. Otherwise the disk is not used, with a warning,
// and files found there are ignored.
//
// # Limits
//
// The arrays, their sizes and their memory are fixed for the life of a Saver. With a node-local tier all checkpoints
// are full. Messages are JSON over the Group: a few hundred bytes a rank and round; the plan (sent once, kept by rank 0)
// and the manifest (on Resume) grow with the number of arrays and ranks. New fails if no manifest could
// hold the plan.
package distributed
