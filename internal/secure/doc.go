// Package secure implements the encrypted connection between two processes of one run that know the run's secret. It is TLS 1.3 (RFC 8446),
// with a key pair for each side that is derived from the secret. Each side accepts only the key that the other side must have.
//
// A store and its clients begin every connection with it:
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
// Sides of different versions tell each other their version and end the connection. The digest is that of the server's binding. It proves
// nothing, but it shows the user whether the server belongs to another run or has another secret.
//
// # Who is at the other end
// The client's and the server's Ed25519 keys are derived from the run's secret by HKDF-SHA256 (RFC 5869), with different labels, so that a
// message that is sent back to its sender is of no use. Certificates serve only to carry these keys in TLS: each side creates its own, and
// checks only the other side's key. By ALPN (RFC 7301) both sides name the binding (run, attempt and role), which the handshake covers. A
// relay can pass bytes on but cannot read, change or add any, because each side's signature covers the fresh keys of both sides. There are
// no session tickets: each connection is authenticated anew, and a secret that becomes known later does not reveal earlier traffic.
//
// # Limits
// A handshake ends with its context, and after [auth.Timeout] if that has no deadline. An unauthenticated peer can make this side hold the
// largest certificate that crypto/tls accepts (256 KiB) and compute one signature. [auth.Gate] limits how many do so at once.
// side hold the largest certificate that crypto/tls takes (256 KiB) and compute one signature; [auth.Gate] bounds how many do so at once.
package secure
