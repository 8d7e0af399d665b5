// Package store holds the key-value stores through which the ranks of a run find each other:
// each publishes its address under a key, and waits for the keys of the others.
//
// # Which store
//
// Ranks that form a group need one store that all of them reach. [Open] opens the store that an init method of torch.distributed
// names, as package mpi does for a program's own init method:
//
//	tcp://node1:29500     rank 0 serves the store at that address, and the others connect to it
//	file:///shared/rdzv   all ranks use one file; each run needs a new path
//
// Beneath it, [NewMemory] is a store within one process. [Serve] makes one available to other processes over TCP, which connect
// with [Dial]. [OpenFile] is a store in a file that processes share, in the format of PyTorch's FileStore. [Prefix] is a view of a
// store in which all keys have a common prefix.
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
// Every operation takes effect at one moment, before it returns, and all processes see these moments in the same order. That holds
// for all keys of a Check, MultiGet, MultiSet or List together. Get, MultiGet and Wait wait for such a moment. Every operation that
// creates a key (Set, Add, Append, CompareSet, MultiSet) wakes the calls that wait for it. A waiting Get returns the value even if
// the key has been deleted again by then. A call ends with its context, and its error lists the missing keys; the server then
// forgets the call. Values are copied, in and out.
//
// A connection is lost when its other process ends, its machine goes silent, or a cable is cut. Every call on it then fails within
// about 20 seconds.
//
// # In a file
//
// A [File] is a log (filelog.go): each change is a record at its end, and every call first reads what others have added. Writers
// exclude each other by flock(2), so the file system must support it, between machines if they share the file: NFS on Linux does,
// Lustre only if it is mounted with flock. If a process is killed during a MultiSet, some of the items may be set and others not.
// The log is never shortened while it is in use, because PyTorch's processes remember how far they have read.
//
// # Which clients a server serves
//
// A server serves only clients that prove the run's [Secret] for the same [Binding], over TLS 1.3, which also encrypts everything
// after that. A connection has [HandshakeTimeout] for the proof. Until then it costs a goroutine and some kilobytes, and delays no
// other connection. If there are more than [MaxHandshakes] such connections, the oldest is closed. A refused connection is logged
// with its address and the reason, once for each host, and ever more rarely if there are many. A server sends a digest of the run,
// attempt and role that it serves. So a client that is refused ([ErrRefused]) knows whether it has reached the right server
// ([ErrOtherSecret]), although that digest is not proved. Keys, values, waits and the store as a whole have limits, which are
// constants of this package. Lengths that peers send are checked before they are used.
//
// # PyTorch's clients
//
// With ServerConfig.Torch, a server also serves PyTorch's TCPStore clients on the same port. It distinguishes them from ddpbatch's
// clients, and their versions from each other, by their first bytes (torchmux.go). They prove nothing, so their part of the store,
// TorchPrefix, is open to anyone who reaches the port. Limits hold for them, too:
//
//   - A query that has begun must arrive completely within 30 seconds, and a reply must be taken within 30 seconds.
//   - A malformed query ends its connection, and no other. So does a query for which [MaxTorchBytes] leaves no room.
//   - A reply waits until [MaxTorchReplies] has room for it, in the order of the queries. A reply of a few kilobytes does not wait,
//     unless it is to a compare_set or a pop.
//   - A client of version 1.13 takes two of the [MaxTorchClients] slots. Its second connection, on which it sends nothing, is never
//     closed while the first is open.
//
// Unlike PyTorch's own server, this one wakes waiting clients at every change, and sends nothing to a client that has given up
// waiting. It serves the queues of 2.8: a key may have a queue besides its value, which only these clients see. A pushed value
// wakes one of the clients that wait for it, and the next one if that client ends, or does something else. It serves neither
// watch_key, which 1.13 has only in C++ and 2.2 not at all, nor what came after the queues.
//
// # Protocol
//
// After the handshake, either side sends frames: a length (4 bytes), then that many bytes. All integers are big-endian. A client's
// frame is a request: an id of its choice (8 bytes), an operation (1 byte) and its fields. The server's frames are replies, each
// with the id of its request, in any order: a request that waits for a key does not delay others on the same connection. To end a
// wait, a client sends a cancel with the same id; the reply lists what is missing. A malformed frame ends its connection, and no
// other. The version that both sides exchange in the handshake covers these messages too.
package store
