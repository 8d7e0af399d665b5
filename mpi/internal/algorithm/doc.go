// Package algorithm has the algorithms of collectives, as programs of sends and receives on one rank. Each collective has a file with the
// type of its functions, the table of its algorithms, and then the algorithms. Each algorithm's cost follows it, unless it is a method of
// Machine. The two scans share scan.go. Parts of algorithms of several collectives have files of their own: segment.go and tree.go, and
// four ways to reduce, star.go, direct.go, halving.go and treereduction.go.
//
// The algorithms see bytes, not element types, and communicate with other ranks only through a [Port]; package mpi gives them one for each
// call. A buffer with blocks is passed with the bounds of the blocks: block i is buf[at[i]:at[i+1]], and len(at) is the size of the group
// plus 1.
//
// # Detecting different calls
//
// All algorithms keep one rule. It makes ranks that make different calls detect that, instead of hanging or continuing as if nothing were
// wrong. The rule: for every division of the ranks into two sides, some rank on each side waits until it has heard from the other side, and
// each side sends a message to the other even if nothing comes from there. (A message carries the call that it is part of. The receiver
// compares that with its own.) If the messages with data are not enough, empty messages go the other way: in a broadcast or scatter from
// each rank to its parent, and in a gather, a reduction to a root or a barrier from the parent to the rank. They are sent at once. Except
// in barriers, the call does not wait for them: [Port.Expect] leaves that to the next call. So a rank returns when its part is done, and is
// at most one call ahead of the others. Blocks without bytes are sent, too, as empty messages.
//
// # The canonical order
//
// A reduction is canonical if it combines the ranks' elements along one fixed tree: neighbors are paired at each level, and one that is
// left over moves up unchanged (the shape of RFC 6962's Merkle trees). For 5 ranks:
//
//	((x0 op x1) op (x2 op x3)) op x4
//
// The left operand always comes from the lower ranks, so an operation need not be commutative. All canonical algorithms give the same bits,
// whatever the length, the segments and the transport. The other algorithms need an operation that commutes, and each gives its own bits.
package algorithm
