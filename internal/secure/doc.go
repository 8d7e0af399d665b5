// Package secure is the encrypted connection between two processes of one run that know the run's secret: TLS 1.3 (RFC 8446), in which
// each side has a key pair that follows from the secret, and accepts no other than the one that must be at the other end.
//
// A store and those who connect to it begin every connection with it:
//
//	client, err := secure.NewClient(secret, auth.Binding{Run: run, Attempt: 1, Role: "store"})
//	...
//	conn, err := client.Open(ctx, tcp, "rank 3") // to read and write instead of tcp
//
// # The wire
//
// All integers are big-endian.
//
//	client to server: "ddpbatch", version (2 bytes)
//	server to client: "ddpbatch", version (2 bytes), digest of the binding (32)
//	both:             TLS 1.3
//	client to server: length (2 bytes), name
//	server to client: 1
//
// Sides of different versions tell each other so, and nothing else. The digest is of the server's binding: nobody has proved
// it, but it tells a person whether the server is another run's or has another secret.
//
// # Who is at the other end
//
// The client's and the server's Ed25519 keys are made of the run's secret by HKDF-SHA256 (RFC 5869), with different words: what one side
// has sent is of no use where it is sent back to it. Certificates are only the form in which TLS carries these keys: each side makes its
// own, and looks at the other's key alone. The binding (run, attempt and role) is what both sides must have named by ALPN (RFC 7301), which
// the handshake covers. A relay can pass bytes on, but cannot read, change or add any, since each side's signature covers both sides' fresh
// keys. There are no tickets: each connection is proved anew, and a run's secret that is found out later does not show what was said.
//
// # Limits
//
// A handshake ends with its context, and after [auth.Timeout] where that has no deadline. A peer that has proved nothing can make this
// side hold the largest certificate that crypto/tls takes (256 KiB) and compute one signature; [auth.Gate] bounds how many do so at once.
package secure
