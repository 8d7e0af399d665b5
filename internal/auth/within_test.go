package auth

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSlowPeer holds both sides against a peer that sends one byte a second, for ever,
// and against one that sends nothing.
func TestSlowPeer(t *testing.T) {
	background := func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} }
	for name, c := range map[string]struct {
		context func(context.Context) (context.Context, context.CancelFunc)
		after   time.Duration
		want    error
	}{
		"no deadline": {background, Timeout, os.ErrDeadlineExceeded},
		"deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 3*time.Second)
		}, 3 * time.Second, context.DeadlineExceeded},
		"late deadline": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Minute)
		}, time.Minute, context.DeadlineExceeded},
		"cancelled": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(2*time.Second, cancel)
			return ctx, cancel
		}, 2 * time.Second, context.Canceled},
		"cancelled before": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}, 0, context.Canceled},
	} {
		for role, f := range map[string]func(context.Context, net.Conn, Secret, Binding, []byte) ([]byte, error){"client": Client, "server": Server} {
			for pace, drip := range map[string]func(net.Conn){"silent": func(net.Conn) {}, "dripping": dripHandshake} {
				t.Run(name+", "+role+", "+pace, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						near, far := net.Pipe()
						var peer sync.WaitGroup
						peer.Go(func() { io.Copy(io.Discard, far) })
						peer.Go(func() { drip(far) })
						ctx, cancel := c.context(t.Context())
						defer cancel()
						begin := time.Now()
						_, err := f(ctx, near, counting(), binding, nil)
						if !errors.Is(err, c.want) {
							t.Errorf("error %v, want %v", err, c.want)
						}
						if took := time.Since(begin); took != c.after {
							t.Errorf("took %v, want %v", took, c.after)
						}
						near.Close()
						far.Close()
						peer.Wait()
					})
				})
			}
		}
	}
}

// dripHandshake sends the beginning of a handshake, a byte a second.
func dripHandshake(conn net.Conn) {
	words := appendChallenge(AppendPreface(nil, Version), nonce{}, make([]byte, 100))
	for _, b := range words {
		if _, err := conn.Write([]byte{b}); err != nil {
			return
		}
		time.Sleep(time.Second)
	}
}

// TestDeadlineIsCleared uses the connection long after the handshake's deadline.
func TestDeadlineIsCleared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := net.Pipe()
		defer c.Close()
		defer s.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		client := &side{secret: counting(), binding: binding}
		server := &side{secret: counting(), binding: binding}
		meet(ctx, c, s, client, server)
		if client.err != nil || server.err != nil {
			t.Fatalf("client: %v; server: %v", client.err, server.err)
		}
		time.Sleep(time.Hour)
		go io.WriteString(c, "x")
		if _, err := s.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
	})
}
