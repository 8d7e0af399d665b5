// Package store holds the key-value stores through which the ranks of a run find each other:
// each publishes its address under a key, and waits for the keys of the others.
//
// # Which store
//
// Ranks that form a group need one store that all of them reach. [Open] opens the one that an init method of
// torch.distributed names, as package mpi does for a program's own init method:
//
//	tcp://node1:29500     rank 0 serves the store at that address, and the others connect to it
//	file:///shared/rdzv   all ranks use one file; each run needs a new path
//
// Beneath it, [NewMemory] is a store within one process. [Serve] lets other processes reach one over TCP, which they do with
// [Dial]. [OpenFile] is a store in a file that processes share, in the format of PyTorch's FileStore. [Prefix] is a view of a
// store in which all keys have a common beginning.
//
//	secret := store.NewSecret() // the others get secret.Hex(), and call ParseSecret
//	binding := store.Binding{Run: "mnist-1", Attempt: 1, Role: "store"}
//	server := store.Serve(listener, store.ServerConfig{Secret: secret, Binding: binding})
//	defer server.Close()
//
//	client, err := store.Dial(ctx, "node1:29400", store.DialConfig{Secret: secret, Binding: binding, Name: "rank 1"})
//	...
//	err = client.Set(ctx, "rank/1", []byte("10.0.0.2:40001"))
//	addr, err := client.Get(ctx, "rank/0") // waits until rank 0 has set it
//
// # Guarantees
//
// Every operation takes effect at one moment, before it returns, and all processes see these moments in the same order. That
// holds for all keys of a Check, MultiGet, MultiSet or List together. Get, MultiGet and Wait wait for such a moment.
// Whatever makes a key (Set, Add, Append, CompareSet, MultiSet) wakes those who wait for it. A Get also sees a key that is
// gone again by then. A call ends with its context, and its error says which keys were missing; the server then forgets the
// call. Values are copied, in and out.
//
// A connection is lost when its other process ends, its machine goes silent, or a cable is cut. Every call on it then fails
// within about 20 seconds.
//
// # In a file
//
// A [File] is a log (filelog.go): each change is a record at its end, and every call first reads what others have added.
// flock(2) keeps writers apart, so the file system must have that, between machines if they share it: NFS on Linux does,
// Lustre only where it is mounted with flock. If a process is killed during a MultiSet, the first items may be there and the
// others not. The log is never shortened while it is in use, as PyTorch's processes remember how far they have read.
//
// # Whom a server serves
//
// A server serves only clients that prove the run's [Secret] for the same [Binding], over TLS 1.3, which also encrypts what
// follows. A connection has [HandshakeTimeout] for the proof. Until then it costs a goroutine and some kilobytes, and keeps
// nobody waiting. Of more than [MaxHandshakes] such connections, the oldest is closed. A refused connection is logged with its
// address and the reason, once for each host, and fewer and fewer of a flood. A server says of itself which run, attempt and
// role it serves, as a digest. So a client that is refused ([ErrRefused]) knows whether it has reached the right server
// ([ErrOtherSecret]); nobody has proved that. Keys, values, waits and the store as a whole have the limits that are given as
// constants. No length from the wire is believed before it is checked.
//
// # PyTorch's clients
//
// With ServerConfig.Torch, a server also serves PyTorch's TCPStore clients on the same port. It tells them apart from
// ddpbatch's, and from each other, by their first bytes (torchmux.go). They prove nothing, so their part of the store,
// TorchPrefix, is open to whoever reaches the port. The limits hold for them, too:
//
//   - A query that has begun must come whole within 30 seconds, and a reply must be taken within 30 seconds.
//   - A malformed query ends its connection, and no other. So does one for which [MaxTorchBytes] has no room left.
//   - A reply waits until [MaxTorchReplies] has room for it, in the order of the queries. One of a few kilobytes does not,
//     unless it is to a compare_set or a pop.
//   - A client of 1.13 takes two of the [MaxTorchClients] slots: its second connection, on which it says nothing, is never
//     closed while the first is there.
//
// Unlike PyTorch's own server, this one wakes who waits at every change, and sends nothing to a client that has given up
// waiting. It serves the queues of 2.8: a key may have a queue beside its value, which only these clients see. A value that
// is pushed wakes one of those who wait for it, and the next where that one ends, or does something else. It does not serve
// watching keys, which 1.13 has in C++ alone and 2.2 no more, nor what came after the queues.
//
// # On the wire
//
// After the handshake, either side sends frames: a length (4 bytes), then that
// many bytes. All integers are big-endian. A client's frame is a request: an
// id of its choice (8 bytes), an operation (1 byte) and its fields. The
// server's frames are replies, each with the id of its request, in any order: who
// waits for a key does not hold up others on the same connection. To end a
// wait, a client sends a cancel with the same id; the reply tells what is
// missing. A malformed frame ends its connection, and no other. The
// version that both sides tell each other in the handshake covers these messages too.
package store
