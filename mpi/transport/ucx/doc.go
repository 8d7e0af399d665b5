// Package ucx carries bytes between ranks by RDMA verbs, on InfiniBand and on Ethernet (RoCE), through UCX.
//
// UCX (openucx.org) is a C library that most sites with such networks have. This package loads libucp at run time (internal/clib),
// version 1.13 or newer. A [Worker] is one rank's end, a [Link] its stream of bytes to one other rank, and back.
//
//	worker, err := ucx.Open(ucx.Config{Rank: rank, Size: size})
//	... // Address travels to the other ranks by other means
//	link, err := worker.Connect(other, address)
//	n, err := link.Write(head, body)
//	n, err = link.Read(buf)
//
// # Messages
//
// All that a link sends are tagged messages (ucp_tag_send_nbx). The tag has the sender's rank, and how many bytes it has read of this link:
// so the other rank knows how much room there is. A rank posts no receives. It asks UCX for the next message, whoever sent it
// (ucp_tag_probe_nb), which takes the same time whatever the number of ranks, and receives it when Read is called. UCX keeps the
// order of one sender's messages.
//
// Short messages are copied into memory of the worker, and count as written at once. Long ones leave from memory of [Worker.Alloc] where
// they lie, and arrive in it where they are to be: UCX then reads one rank's memory from the other (its rendezvous protocol), without a
// copy.
//
// # Memory
//
// What UCX sends from and receives into is registered memory that is never unmapped while the worker lives, and UCX registers without its
// cache (UCX_IB_REG_METHODS=direct, from 1.16 on UCX_RCACHE_ENABLE=n). The cache learns of unmapped memory by hooks in the C library, and
// Go's runtime makes its system calls without that: memory that Go gave back and got again had another page below it than the network card
// knew, and 11 of 12 messages arrived with old bytes, without any error (UCX 1.13, rc verbs on Soft-RoCE).
//
// # Limits
//
// Bytes are neither encrypted nor authenticated, and who can send to the address of a worker can send it messages: the addresses travel
// over connections that are encrypted. UCX's shared memory and TCP work as well, and are there for tests.
package ucx
