// Package transport carries bytes between the ranks of a group.
//
// A [Fabric] is one rank's links to all others. [Connect] makes that of ranks in processes of their own: a
// TCP connection for each pair, and shared memory beside it for pairs on one machine. A [Network]
// joins ranks within one process, with the faults that networks have. What is said over the links is the
// business of package engine.
//
//	fabric, err := transport.Connect(ctx, transport.Config{
//		Rank: rank, Size: size, Listen: "10.0.0.7", Directory: store,
//		Secret: secret, Run: run, Attempt: 1,
//	})
//
// # Meeting
//
// Each rank listens on a port that the system picks, publishes the address and its machine in
// the Directory, dials every lower rank and accepts every higher one. Both sides
// prove that they know the run's secret (package auth, role "transport") before
// anything else is read, and say which rank of how many they are. A stranger,
// an impossible rank and a rank that is there already are refused and logged
// ([auth.Gate]); they hold up nobody, and nothing listens any more once all ranks are there.
//
// Two ranks of one machine share the memory that the higher one makes and offers within the handshake. The lower one opens it by
// /proc, which only works within one machine, user and container, and says whether it could: if not, the pair talks over TCP.
//
// # Waiting
//
// Nothing here waits but Sleep: links are polled, with system calls that Go's scheduler does not hear of, since being woken
// costs more than most messages take. An epoll instance of the rank's own tells which sockets have news. A rank that sleeps says so
// in the memory it shares, and is rung out of its sleep, by a pipe, by whoever puts something there.
//
// # Limits
//
// Bytes are authenticated only by the handshake that the connection began with: who
// can change packets on the way can change results. A connection for each pair
// means size-1 connections on each rank.
package transport
