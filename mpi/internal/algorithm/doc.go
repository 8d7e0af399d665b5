// Package algorithm holds the algorithms of collectives, as programs of sends
// and receives on one rank. Each collective has a file: the type of its functions, the table of
// its algorithms, then the algorithms, each with its cost, unless that is one of Machine's. The two scans share scan.go.
// The parts that algorithms of several collectives are made of have files of their own: segment.go and tree.go, and four ways to
// reduce, star.go, direct.go, halving.go and treereduction.go.
//
// They know bytes, not element types, and reach the other ranks through a
// [Port] alone; package mpi gives them one for each call. Blocks of a buffer are given by
// their bounds: block i is buf[at[i]:at[i+1]], and at has one more number than the group has ranks.
//
// # Nobody returns unnoticed
//
// All these algorithms keep one rule, so that ranks that make different calls find out, and neither hang nor go on
// as if nothing were wrong: however the ranks are parted in two, some rank on each side waits until it
// has heard from the other side; and each side alone, as far as it comes, sends the other a message. (A message carries the call
// that it is of, and is checked when it comes.) Where the messages that the work needs would not do, empty ones go the other
// way: from each rank to its parent in a broadcast or scatter, from the parent to the rank in a gather, reduction to a root or
// barrier. They are sent at once, and, but for the barrier's, not waited for in the call: [Port.Expect] leaves that to the next one, so
// that a rank whose part is done returns, and is ahead of the others by one call at most. Blocks without bytes are sent as empty messages,
// too.
//
// # The canonical order
//
// A reduction is canonical if it combines the ranks' elements along one fixed
// tree: neighbors are paired at each level, and one left over moves up as it
// is (the shape of RFC 6962's Merkle trees). For 5 ranks:
//
//	((x0 op x1) op (x2 op x3)) op x4
//
// The left operand is always that of the lower ranks, so an operation need not
// be commutative. Canonical algorithms all give the same bits, whatever the length, the
// segmenting or the transport; the others need an operation that commutes, and give bits of their own.
package algorithm
