// Package ucx carries bytes between ranks by RDMA verbs, on InfiniBand and on Ethernet (RoCE), through UCX.
//
// UCX (openucx.org) is a C library that most sites with such networks have. This package loads libucp, version 1.13 or newer, at
// run time (internal/clib). A [Worker] is one rank's end. A [Link] is its stream of bytes to one other rank, and one back.
//
//	worker, err := ucx.Open(ucx.Config{Rank: rank, Size: size})
//	... // Address travels to the other ranks by other means
//	link, err := worker.Connect(other, address)
//	n, err := link.Write(head, body)
//	n, err = link.Read(buf)
//
// # Messages
//
// A link sends all its data as tagged messages (ucp_tag_send_nbx). The tag contains the sender's rank, and how many bytes it has
// read of this link, so that the other rank knows how much room there is. A rank posts no receives. It asks UCX for the next
// message of any sender (ucp_tag_probe_nb), which takes the same time whatever the number of ranks, and receives it when Read is
// called. UCX keeps the order of one sender's messages.
//
// Short messages are copied into memory of the worker, and count as written at once. Long ones are sent from memory of
// [Worker.Alloc] in place, and received in place into such memory. UCX then reads one rank's memory from the other (its rendezvous
// protocol), without a copy.
//
// # Memory
//
// UCX sends from and receives into registered memory that is never unmapped while the worker lives, and it registers memory without
// its cache (UCX_IB_REG_METHODS=direct, from 1.16 on UCX_RCACHE_ENABLE=n). The cache notices unmapped memory through hooks in the C
// library, but Go's runtime makes system calls without that library. Memory that Go gave back and got again had other pages than
// the network card knew, and 11 of 12 messages arrived with old bytes, without any error (UCX 1.13, rc verbs on Soft-RoCE).
//
// # Limits
//
// Bytes are neither encrypted nor authenticated, and anyone who can send to a worker's address can send it messages: addresses must
// travel over encrypted connections. UCX's shared memory and TCP work as well, for tests.
package ucx
