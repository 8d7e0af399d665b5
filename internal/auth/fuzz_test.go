package auth

import (
	"bytes"
	"strings"
	"testing"
)

// seeds are the beginnings of handshakes as each side hears them.
func seeds(f *testing.F) {
	hello := appendChallenge(AppendPreface(nil, Version), nonce{1, 2, 3}, []byte("node0"))
	f.Add([]byte(nil))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte(magic + "\x00\x02"))
	f.Add(hello)
	f.Add(append(hello, refused))
	f.Add(append(hello, append([]byte{accepted}, make([]byte, 32)...)...))
	f.Add(append(hello, make([]byte, 32)...))
	f.Add([]byte(string(AppendPreface(nil, Version)) + strings.Repeat("n", 32) + "\xff\xff"))
}

// FuzzServer plays arbitrary bytes to a server: none of them prove anything.
func FuzzServer(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, words []byte) {
		conn := &script{in: bytes.NewReader(words)}
		if _, err := Server(t.Context(), conn, counting(), binding, []byte("s")); err == nil {
			t.Fatal("the server accepted a client without the secret")
		}
		if most := len(magic) + 2 + 32 + 2 + 1 + 1; conn.out.Len() > most {
			t.Errorf("the server sent a stranger %d bytes", conn.out.Len())
		}
	})
}

// FuzzClient plays arbitrary bytes to a client.
func FuzzClient(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, words []byte) {
		conn := &script{in: bytes.NewReader(words)}
		if _, err := Client(t.Context(), conn, counting(), binding, []byte("c")); err == nil {
			t.Fatal("the client accepted a server without the secret")
		}
	})
}
