// Package transport carries bytes between the ranks of a group.
//
// A [Fabric] is one rank's links to all others, two to each: one for control and one for data. [Connect] makes that of ranks
// in processes of their own. Control has a TCP connection of its own, data has shared memory within a machine, else one TCP
// connection or several. A [Network] joins ranks within one process, with the faults that networks have. What is said over
// the links is the business of package engine.
//
//	fabric, err := transport.Connect(ctx, transport.Config{
//		Rank: rank, Size: size, Listen: "10.0.0.7", Directory: store,
//		Secret: secret, Run: run, Attempt: 1,
//	})
//
// # Connecting
//
// Each rank listens on a port that the system picks, publishes the address, its machine and a random ticket in
// the Directory, dials every lower rank and accepts every higher one. Both sides
// prove that they know the run's secret and the ticket (the role is "transport") before
// anything else is read, and say which rank of how many they are. A stranger,
// an impossible rank and a rank that is there already are refused and logged;
// they hold up nobody, and nothing listens any more once all ranks are there.
//
// Each connection goes through this handshake. It ends with the accepting rank's welcome and the dialing rank's confirmation of
// that; only then, and once all connections of a rank are confirmed, does it count as there. Where one of them breaks before, the
// dialing rank makes a new try at all of them, and the other gives up what it has of an older try of the same process. A
// confirmation may still be lost with its connection: of the control link, the streams find out, which are welcome after it alone;
// of the last stream, whoever uses the link.
//
// Two ranks of one machine share the memory that the higher one makes and offers within the handshake. The lower one opens it by
// /proc, which only works within one machine, user and container, and says whether it could: if not, the pair talks over TCP.
//
// # Streams
//
// The data link of a pair without shared memory is striped over Config.Streams TCP connections, in cells of 256 KiB, as networks
// limit single flows: clouds give one 5 to 10 Gbit/s of a faster card, and switches that spread flows over equal paths (ECMP,
// RFC 2992) send all of one along the same. NCCL has NCCL_NSOCKS_PERTHREAD for this. Where each flow got 1 Gbit/s, 1, 2,
// 4 and 8 streams moved 119, 237, 467 and 896 MB/s; without a limit they were alike within the noise (BenchmarkStreams).
//
// # Waiting
//
// Nothing here waits but Sleep: links are polled, with system calls that Go's scheduler does not hear of, since being woken
// costs more than most messages take. An epoll instance of the rank's own tells which sockets are ready. A rank that sleeps says so
// in the memory it shares, and is woken, by a byte in a pipe, by whoever puts something there.
//
// # Limits
//
// The rest of the handshake, and the control link, are encrypted with keys that follow from secret, ticket and handshake (sealed.go):
// who is on the way can cut them, and not read or change them. With Config.Encrypt the same is true of the data link. Without it, bytes
// of the data link are authenticated only by the handshake that it began with: who can change packets on the way can change results. A
// ticket is as secret as the Directory: a store's wire is encrypted.
//
// Each rank has from 1 to 1 + Config.Streams connections to each other one: nearly 2000 in a world of 1000 on as many machines. A
// limit on descriptors (RLIMIT_NOFILE, getrlimit(2)) must leave room for them.
package transport
