// Package store holds the key-value stores that the ranks of a run meet at:
// each publishes its address under a key, and waits for the keys of the others.
//
// [NewMemory] is a store within one process. [Serve] lets other processes
// reach one over TCP, which they do with [Dial]. [Prefix] is a view of a store
// in which all keys have a common beginning.
//
//	server := store.Serve(listener, store.ServerConfig{Secret: secret, Binding: binding})
//	defer server.Close()
//
//	client, err := store.Dial(ctx, store.DialConfig{Addrs: []string{"node1:29400"}, Secret: secret, Binding: binding, Name: "rank 1"})
//	...
//	err = client.Set(ctx, "rank/1", []byte("10.0.0.2:40001"))
//	addr, err := client.Get(ctx, "rank/0") // waits until rank 0 has set it
//
// # Guarantees
//
// Every operation but Get and Wait takes effect at one moment, before it
// returns, and all see them in the same order. Whatever makes a key, be it Set, Add
// or CompareSet, wakes who waits for it; a Get also sees a key that is gone
// again by then. A call ends with its context and says which keys were
// missing; the server then forgets it. Values are copied, in and out.
//
// A connection that is lost, by a process that ends, a machine that goes
// silent or a cut cable, makes every call on it fail within about 20 seconds.
//
// # Whom a server serves
//
// Only who proves that it knows the run's secret (package auth). A connection
// that does not has auth.Timeout for it, costs a goroutine and some kilobytes,
// and keeps nobody waiting; of more than [MaxHandshakes], the oldest is closed. It
// is logged with its address and what was wrong, of a flood fewer and fewer. What follows the proof is not encrypted.
// Keys, values, waits and the store as a whole have the limits that are given
// as constants; no length off the wire is believed before it is checked.
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
