// Package auth lets two processes of one run prove to each other, over an
// untrusted connection, that they know the run's secret.
//
// Every connection between ranks begins with its handshake (package transport): the side that dialed calls [Client], and on the side that
// accepted a [Gate] calls [Server]. Stores and agents use package secure.
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
// preceded by its length. A fresh nonce from each side makes replays useless;
// the name of the side keeps a proof from being sent back to its maker; the
// binding keeps a proof for one run, attempt or role from being used for another.
//
// The server shows its proof only to a client that has shown its own, so a
// stranger cannot collect proofs or test guesses. Sides of different
// versions tell each other only their versions: [Version] covers everything
// that ddpbatch sends between its processes, not only the handshake.
//
// # Guarantees and limits
//
// Neither side reads beyond the handshake, so what follows on the connection is
// intact. At most [MaxHello] bytes are allocated for a peer that has not proved
// itself. A handshake ends with its context, and after [Timeout] if the context
// has no deadline. After an error the connection cannot be used any more; the
// caller closes it.
//
// The handshake does not encrypt or sign what follows: package transport does that with keys of its own.
package auth
