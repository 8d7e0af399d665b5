// Package auth lets two processes of one run prove to each other, over a
// connection that nobody else vouches for, that they know the run's secret.
//
// Ranks begin every connection between them with it (package transport): the side that dialled calls [Client], the side that accepted has a
// [Gate] call [Server]. Stores and agents use package secure.
//
//	conn, err := net.Dial("tcp", addr)
//	...
//	peer, err := auth.Client(ctx, conn, secret, auth.Binding{Run: run, Attempt: 1, Role: "transport"}, []byte("rank 3"))
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
// The handshake encrypts nothing and signs nothing of what follows: package transport does that with keys of its own.
package auth
