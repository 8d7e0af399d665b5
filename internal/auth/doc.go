// Package auth lets two processes of one run prove to each other, over a
// connection that nobody else vouches for, that they know the run's secret.
//
// Store and transport begin every connection with it: the side that dialled
// calls [Client], the side that accepted calls [Server], or has a [Gate] do so for
// all that connect to a listener.
//
//	conn, err := net.Dial("tcp", addr)
//	...
//	peer, err := auth.Client(ctx, conn, secret, auth.Binding{Run: run, Attempt: 1, Role: "store"}, []byte("rank 3"))
//	if err != nil {
//		conn.Close()
//		return err
//	}
//
// # The handshake
//
// All integers are big-endian. A hello is its length in 2 bytes, then that many bytes.
//
//	client to server: "ddpbatch", version (2 bytes)
//	server to client: "ddpbatch", version (2 bytes), nonce (32), hello
//	client to server: nonce (32), hello, proof (32)
//	server to client: 1, proof (32)    or    0: refused
//
// A proof is HMAC-SHA256 (RFC 2104), keyed with the secret, over: which side
// makes it, the version, the binding, both nonces and both hellos, each word
// preceded by its length. A fresh nonce from each side keeps a recording from
// being of use; the side keeps a proof from being sent back to its maker; the
// binding keeps a proof for one run, attempt or role from serving another.
//
// The server shows its proof only to a client that has shown its own, so a
// stranger can collect neither proofs nor guesses from it. Sides of different
// versions tell each other so, and nothing else: [Version] stands for all
// that ddpbatch sends between its processes, not for the handshake alone.
//
// # Guarantees and limits
//
// Neither side reads a byte beyond the handshake, so what follows on the connection is
// intact. No more than [MaxHello] bytes are allocated for a peer that has proved
// nothing. A handshake ends with its context, and after [Timeout] where that
// has no deadline. After an error the connection is of no further use; closing
// it is left to the caller.
//
// What follows the handshake is neither encrypted nor signed: who can change
// packets on the way can still change the traffic of a connection that was
// once proved.
package auth
