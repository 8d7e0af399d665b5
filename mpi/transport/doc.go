// Package transport carries bytes between the ranks of a group.
//
// A [Fabric] has one rank's links to all others, two to each: one for control and one for data. [Connect] makes the Fabric of a rank that
// is a process. Its control links are TCP connections. Its data links are shared memory within a machine, and otherwise one or more TCP
// connections. A [Network] joins ranks within one process, and can simulate faults of networks. Package engine defines what the links
// carry.
//
//	fabric, err := transport.Connect(ctx, transport.Config{
//		Rank: rank, Size: size, Listen: "10.0.0.7", Directory: store,
//		Secret: secret, Run: run, Attempt: 1,
//	})
//
// # Connecting
//
// Each rank listens on a port that the system picks. It publishes the address, its machine and a random ticket in the Directory, dials
// every lower rank and accepts every higher one. Both sides prove that they know the run's secret and the ticket (the role is "transport")
// before anything else is read, and say which rank of how many they are. A connection that cannot prove that, one with an impossible rank,
// and one with the rank of another process are refused and logged. They do not delay the others. The rank stops listening when all ranks
// are connected.
//
// Each connection goes through this handshake. At its end, the accepting rank sends a welcome, and the dialing rank confirms that. A rank
// counts as connected when all of its connections are confirmed. If one of them breaks before, the dialing rank tries all of them again,
// and the other rank closes those of older tries of the same process. The confirmation itself may be lost with its connection. If that is
// the control link, the streams show it, because they get a welcome only after it. If it is the last stream, the first use of the link
// shows it.
//
// Two ranks of one machine share memory that the higher one makes and offers in the handshake. The lower one opens it through /proc, which
// works only within one machine, user and container, and reports whether that worked. If it did not, the pair uses TCP.
//
// # Streams
//
// The data link of a pair without shared memory is striped over Config.Streams TCP connections, in cells of 256 KiB, because networks limit
// single flows: clouds give one flow 5 to 10 Gbit/s of a faster card, and switches that spread flows over equal paths (ECMP, RFC 2992) send
// a flow along one path. NCCL has NCCL_NSOCKS_PERTHREAD for this. With a limit of 1 Gbit/s for each flow, 1, 2, 4 and 8 streams moved 119,
// 237, 467 and 896 MB/s. Without a limit they were equal within the noise (BenchmarkStreams).
//
// # Waiting
//
// Only Sleep waits. Links are polled, with system calls that are not announced to Go's scheduler, because waking a goroutine takes longer
// than most messages. The rank has an epoll instance of its own that says which sockets are ready. A rank that sleeps sets a flag in the
// memory that it shares, and a rank that writes there wakes it with a byte in a pipe.
//
// # Limits
//
// The handshake after the proofs, and the control link, are encrypted with keys derived from the secret, the ticket and the handshake
// (sealed.go). An attacker on the way can cut these connections, but not read or change what they carry. With Config.Encrypt the same is
// true for data links. Without it, only the handshake at the start of a data link authenticates its bytes, so an attacker that can change
// packets can change results. A ticket is as secret as the Directory; the wire of a store is encrypted.
//
// Each rank has from 1 to 1 + Config.Streams connections to each other rank: nearly 2000 in a world of 1000 ranks on as many machines. The
// limit of descriptors (RLIMIT_NOFILE, getrlimit(2)) must allow them.
package transport
