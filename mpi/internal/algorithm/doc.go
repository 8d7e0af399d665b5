// Package algorithm holds the algorithms of collectives, as programs of sends
// and receives on one rank.
//
// They know bytes, not element types, and reach the other ranks through a
// [Port] alone; package mpi gives them one for each call.
//
// # The canonical order
//
// A reduction is canonical if it combines the ranks' elements along one fixed
// tree: neighbours are paired at each level, and one left over moves up as it
// is (the shape of RFC 6962's Merkle trees). For 5 ranks:
//
//	((x0 op x1) op (x2 op x3)) op x4
//
// The left operand is always that of the lower ranks, so an operation need not
// be commutative. Canonical algorithms all give the same bits, whatever the length, the
// segmenting or the transport; the others need an operation that commutes, and give bits of their own.
package algorithm
