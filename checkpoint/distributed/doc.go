// Package distributed saves the state of all ranks of a job as one checkpoint, while training goes on, and resumes it
// with any number of ranks.
//
// A Saver knows the arrays of its rank. New shares out the work: what every rank holds alike (plain data parallelism
// holds everything alike) is split over its holders by bytes, so that each of n ranks writes an n-th; what one rank
// alone holds is that rank's to write. Who gets no bytes, as most of many ranks with a small state, writes no shard,
// and only tells that it is done. Save copies this rank's part into a buffer; from there on training may change the
// arrays. In the background each rank encodes and writes its own shard, rank 0 commits when all are durable, and
// tells the others.
//
// Every rank calls New, then Resume (or Begin, to go on from nothing), Save after each step that is to be kept, Wait before it counts on
// the last one, and Close.
//
// # Guarantees
//
//   - A checkpoint is committed by rank 0 alone, after every rank has said, by message, that its shard is durable. No
//     rank ever looks at the file system to learn how far another is.
//   - An error of one rank is every rank's: the same call returns it everywhere, errors.Is finds the same sentinel,
//     the text names the rank. Nothing of a save that failed stays, except where the commit may have happened after
//     all.
//   - At most one save is in flight; the next Save waits for it. With Options.Async a Save costs that wait and one
//     copy of this rank's part.
//   - Memory: buffers are reserved by New and never grow: one copy of this rank's part, two with deltas. Where
//     Options.MaxMemory does not allow that, all ranks save synchronously, straight from the live arrays.
//   - Rank 0 alone chooses what to resume from, and what a save is a delta to. A checkpoint that any rank finds
//     corrupt is rejected, and all go on to the one before it; an error that does not speak of damage ends Resume
//     instead of losing work.
//   - When a context ends or a rank dies, all calls return with an error, provided that the Group's methods do. Close
//     waits until every goroutine has ended.
//
// # Rounds
//
// No collective waits for a disk, so none outlasts a communicator's timeout. In New, Resume and Begin what a disk may
// keep up runs beside exchanges of the ranks at every tick of 2 s. While a save is in flight the ranks
// exchange in rounds: each reports where it stands, and rank 0 decides for all. A rank that has news, or
// nothing to do, comes at once; one that is still busy comes at its tick. So a commit follows the last shard at once.
//
// # Deltas
//
// With Options.Delta = k each full checkpoint is followed by up to k that hold the XOR with it. The base stays in
// memory, nothing is read. The first save of a Saver is full, and so is the one after a save that failed.
//
// # Node-local tier
//
// With Options.Local a shard goes to a disk of the node first, durably, with a record of what it belongs to; the
// buffer is then free for the next Save. From there it is copied to the shared folder in the background, one
// checkpoint at a time, the newest first; those that a newer one has overtaken are dropped. Only what has reached the
// shared folder is committed, is what Wait waits for, and survives the loss of several nodes.
//
// With Options.Peers, too, each shard is copied to the disk of one other node as soon as it is on its own, and stays
// there as long: so a save that is on the nodes' disks alone survives the loss of any one of them. Copies go from
// rank to rank, past the rounds, and nothing waits for them; what one costs is the network and the other disk, once
// more for each save. A copy that fails is given up.
//
// If a job dies in between, Resume of the next attempt finds the shards that are complete over all nodes, wherever
// its ranks are now placed, and commits them first, if they are newer than what is shared and no attempt has gone on
// from before them. Where a shard is damaged its replica is taken. A save of which shards are damaged or missing
// everywhere is passed over, and rank 0 says which; a disk that cannot be searched ends Resume, as it may hold a save
// that was acknowledged. Begin gives all of it up.
//
// A node's disk needs room for at most four saves at a time: the newest one that could not be committed, the one that
// is being flushed, the newest one that is whole, and the one that is being written; for as many of another node's
// where there are copies. When all has been committed nothing stays. A job that dies leaves what it had; a later
// attempt of the run removes it once it has saved on that node, or has nothing to save there. Rank 0 puts a shard
// there even if it has no bytes: the record beside it says what goes into the manifest.
//
// A local disk that takes nothing is passed by, with a warning. One that fails after it has taken a shard, before
// that is flushed, loses the save: where a newer one is in flight that takes its place, with a warning, otherwise the
// save fails on all ranks.
//
// The run's folder below Options.Local is this user's alone, and held open from New on. Options.Local and each folder
// above it must belong to the user or root, and be such that nobody else can rename what is in it (as /tmp, mode
// 1777, is), unless a folder above lets nobody else in. Where that is not so, the disk is passed by, with a warning,
// and so is what lies there.
//
// # Limits
//
// The arrays, their sizes and their memory are fixed for the life of a Saver. With a node-local tier all checkpoints
// are full. Messages are JSON over the Group: a few hundred bytes a rank and round; the plan (once, which rank 0
// keeps) and the manifest (on Resume) grow with the number of arrays and ranks. New fails where no manifest could
// hold the plan.
package distributed
