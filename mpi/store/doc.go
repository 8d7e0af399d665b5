// Package store holds the key-value stores that the ranks of a run meet at:
// each publishes its address under a key, and waits for the keys of the others.
//
// [NewMemory] is a store within one process. [Serve] lets other processes
// reach one over TCP, which they do with [Dial]. [OpenFile] is a store in a file that processes share, in the
// format of PyTorch's FileStore. [Prefix] is a view of a store in which all keys have a common beginning. [Open] takes
// a word, tcp://host:port or file:///path, as torch.distributed's init methods are.
//
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
// Every operation takes effect at one moment, before it returns, and all see them in the same order;
// that holds for all keys of a Check, MultiGet, MultiSet or List together. Get, MultiGet and Wait wait for that
// moment. Whatever makes a key, be it Set, Add, Append, CompareSet or MultiSet, wakes who waits
// for it; a Get also sees a key that is gone again by then. A call ends with its context and says which keys were
// missing; the server then forgets it. Values are copied, in and out.
//
// A connection that is lost, by a process that ends, a machine that goes
// silent or a cut cable, makes every call on it fail within about 20 seconds.
//
// # In a file
//
// A [File] is a log: each change is a record at its end (filelog.go), and every call first reads what others have
// added. flock(2) keeps writers apart, so the file system must have that, between machines if they share
// it: NFS on Linux does, Lustre only where it is mounted with flock. Of a MultiSet under which a process was killed
// the first items may be there. The log is never shortened while it is in use, as PyTorch's processes remember how
// far they have read.
//
// # Whom a server serves
//
// Only who proves that it knows the run's secret, over TLS (package secure), which also encrypts what follows. A connection
// that does not has auth.Timeout for it, costs a goroutine and some kilobytes,
// and keeps nobody waiting; of more than [MaxHandshakes], the oldest is closed. It
// is logged with its address and what was wrong, each host once, of a flood fewer and fewer. A server
// says of itself which run, attempt and role it serves, as a digest, so that a client that does not get in knows whether it came to the right
// one (ErrOtherSecret); nobody has proved that.
// Keys, values, waits and the store as a whole have the limits that are given
// as constants; no length off the wire is believed before it is checked.
//
// With ServerConfig.Torch, PyTorch's TCPStore clients are served on the same port. They are told
// apart from ddpbatch's, and from each other, by their first bytes (torchquery.go, torchmux.go). They prove nothing,
// so their part of the store, TorchPrefix, is open to whoever reaches the port. The limits hold for them, too; a
// query that has begun must come whole within 30 seconds, and a reply be taken; a malformed one ends its connection, and
// no other, and so does one for which [MaxTorchBytes] has no room left. A reply waits until [MaxTorchReplies] has room
// for it, in the order of the queries; one of a few kilobytes does not, unless it is to a compare_set or a pop. A
// client of 1.13 takes two of the [MaxTorchClients] slots: its second connection, on which it says nothing, is never closed while the first is there. Unlike
// PyTorch's own server, this one wakes who waits at every change, and sends nothing to a client that has given
// up waiting. The queues of 2.8 are served: a key may have one beside its value, which only these clients see. A value that
// is pushed wakes one of those who wait for it, and the next where that one ends, or does something else. Not
// served: watching keys, which 1.13 has in C++ alone and 2.2 no more, and what came after the queues.
//
// # On the wire
//
// After the handshake, either side sends frames: a length (4 bytes), then that
// many bytes. All integers are big-endian. A client's frame is a request: an
// id of its choice (8 bytes), an operation (1 byte) and its fields. The
// server's frames are replies, each with the id of its request, in any order: who
// waits for a key does not hold up others on the same connection. To end a
// wait, a client sends a cancel with the same id; the reply tells what is
// missing. A malformed frame ends its connection, and no other. auth.Version covers these messages too.
package store
