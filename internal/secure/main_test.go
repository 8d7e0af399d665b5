package secure

import (
	"context"
	"net"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	secret  = auth.Secret{1, 2, 3}
	binding = auth.Binding{Run: "run-7", Attempt: 3, Role: "store"}
)

// keys makes the two sides of one binding.
func keys(t testing.TB, s auth.Secret, b auth.Binding) (*Client, *Server) {
	t.Helper()
	client, err := NewClient(s, b)
	if err != nil {
		t.Fatal(err)
	}
	server, err := NewServer(s, b)
	if err != nil {
		t.Fatal(err)
	}
	return client, server
}

// tcpPair is the two ends of a connection. (A pipe would have each side wait for the other to read its alert.)
func tcpPair(t testing.TB) (dialled, accepted net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if dialled, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if accepted, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	return dialled, accepted
}

// outcome is what became of the two sides of a connection.
type outcome struct {
	client, server       net.Conn
	clientErr, serverErr error
	name                 string
}

// open runs both sides, each on its own connection, which it closes where that failed.
func open(t testing.TB, client *Client, dialled net.Conn, server *Server, accepted net.Conn) (o outcome) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	var sides sync.WaitGroup
	sides.Go(func() {
		if o.client, o.clientErr = client.Open(ctx, dialled, "rank 5"); o.clientErr != nil {
			dialled.Close()
		}
	})
	sides.Go(func() {
		var name []byte
		if o.server, name, o.serverErr = server.Open(ctx, accepted); o.serverErr != nil {
			accepted.Close()
		}
		o.name = string(name)
	})
	sides.Wait()
	return o
}
