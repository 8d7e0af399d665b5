// Package transport moves the frames of collectives between the ranks of one
// process group.
//
// A [Mesh] joins every rank to every other. [ConnectTCP] makes one of TCP
// connections, one for each pair of ranks; package mpi runs its collectives over it.
//
//	mesh, err := transport.ConnectTCP(ctx, transport.Config{
//		Rank: rank, Size: size, Listen: "10.0.0.7", Directory: store,
//		Secret: secret, Run: run, Attempt: 1, Timeout: 10 * time.Minute,
//	})
//	...
//	defer mesh.Close()
//	mesh.Begin(transport.Call{Seq: 1, Count: uint64(len(out))})
//	mesh.Send(ctx, right, out)
//	mesh.Recv(ctx, left, in)
//	mesh.Sent(ctx, right)
//
// # Meeting
//
// Each rank listens on a port that the system picks, publishes the address in
// the Directory, dials every lower rank and accepts every higher one. Both sides
// prove that they know the run's secret (package auth, role "transport") before
// anything else is read, and say which rank of how many they are. A stranger,
// an impossible rank and a rank that is there already are refused and logged
// ([auth.Gate]); they hold up nobody, and nothing listens any more once all ranks are there.
//
// # The wire
//
// After the handshake both directions carry frames: a header of 32 bytes,
// then the payload, elements as they lie in memory. Integers are little-endian.
//
//	offset  bytes
//	0       2      "dM"
//	2       1      version, 1
//	3       1      kind: 1 data, 2 abort, 3 bye
//	4       1      collective  \
//	5       1      element      |
//	6       1      operation    |  the Call: the same on every rank
//	7       1      zero         |
//	8       8      sequence     |
//	16      8      count        |
//	24      4      root        /
//	28      4      payload length
//
// An abort carries why its sender failed, a bye that its sender closes its mesh
// and what its last call was. Every header is checked before a byte of
// payload is read: a payload goes straight into the receiver's buffer, and only
// if it has exactly the buffer's length.
//
// # Guarantees
//
// Frames of one pair arrive in the order they were sent. Frames of another Call than
// the receiver's own are an error on both sides that shows both calls. The
// death of a peer's process is an error at once; that of its host after about 25
// seconds, or Config.Timeout if frames to it are under way. After the first
// failure a mesh is broken, and the peers are told why. Nothing is
// allocated for a frame.
//
// # Limits
//
// Frames are authenticated only by the handshake that the connection began with: who
// can change packets on the way can change results. A connection for each pair
// means size-1 connections and 2(size-1) goroutines on each rank.
package transport
