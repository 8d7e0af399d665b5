package store

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit"
)

// connFrom is a connection with a given remote address.
type connFrom struct {
	net.Conn
	from string
}

func (c connFrom) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(c.from), Port: 4} }

func pendingCount(l *pendingConns) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// TestOldPendingConnsMakeRoom adds connections in the given order to a pendingConns with room for 2. clients is the number of 1.13 clients
// of each host.
func TestOldPendingConnsMakeRoom(t *testing.T) {
	for name, c := range map[string]struct {
		clients map[string]int
		come    []string
		go1st   []int // the connections that are closed while the clients are connected
		then    []int // all that are closed after the clients have gone
	}{
		"no clients":                {nil, []string{"::1", "::2", "::3", "::4"}, []int{0, 1}, []int{0, 1}},
		"a client's second stays":   {map[string]int{"::1": 1}, []string{"::1", "::2", "::3", "::4"}, []int{1}, []int{0, 1}},
		"one for each client":       {map[string]int{"::1": 1}, []string{"::1", "::1", "::1", "::1"}, []int{1}, []int{0, 1}},
		"more clients than room":    {map[string]int{"::1": 4}, []string{"::1", "::1", "::1", "::1"}, nil, []int{0, 1}},
		"and a newcomer":            {map[string]int{"::1": 3}, []string{"::1", "::1", "::1", "::2"}, nil, []int{0, 1}},
		"IPv4 by way of IPv6":       {map[string]int{"10.0.0.1": 1}, []string{"::ffff:10.0.0.1", "::2", "::3"}, nil, []int{0}},
		"a host with nobody silent": {map[string]int{"::9": 3}, []string{"::1", "::2", "::3"}, []int{0}, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			l := pendingConns{room: 2}
			var ends []net.Conn
			expect := func(want []int) {
				t.Helper()
				var gone []int
				for i, end := range ends {
					end.SetReadDeadline(time.Unix(1, 0))
					if _, err := end.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
						gone = append(gone, i)
					}
				}
				if !slices.Equal(gone, want) {
					t.Errorf("%v are gone, want %v", gone, want)
				}
			}
			serving := func(sign int) {
				for host, n := range c.clients {
					for range n {
						l.countClient(hostOf(connFrom{nil, host}), sign)
					}
				}
			}
			serving(1)
			var conns []net.Conn
			for _, from := range c.come {
				near, far := net.Pipe()
				defer near.Close()
				defer far.Close()
				ends, conns = append(ends, near), append(conns, connFrom{far, from})
				l.add(conns[len(conns)-1])
			}
			expect(c.go1st)
			serving(-1)
			expect(c.then)
			if len(l.clients) != 0 {
				t.Errorf("clients left: %v", l.clients)
			}
			for i, conn := range conns {
				if there := l.remove(conn); there == slices.Contains(c.then, i) {
					t.Errorf("connection %d was there: %v", i, there)
				}
			}
		})
	}
}

// TestHalfAHelloStaysPending sends only the first byte of the later hello. The connection stays pending until others push it out, or a time
// has passed.
func TestHalfAHelloStaysPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &torchMux{ctx: t.Context(), pending: pendingConns{room: 1}}
		begin, errs := time.Now(), make(chan error, 2)
		for i := range 2 {
			near, far := net.Pipe()
			defer near.Close()
			defer far.Close()
			go func() {
				defer far.Close()
				_, _, err := d.identify(far)
				errs <- err
			}()
			send(t, near, torchHello[:1+i])
			synctest.Wait()
			if n := pendingCount(&d.pending); n != 1 {
				t.Errorf("%d are pending, want 1", n)
			}
		}
		if err := <-errs; err == nil || !strings.Contains(err.Error(), "too many others") || time.Since(begin) != 0 {
			t.Errorf("the first, after %v: %v", time.Since(begin), err)
		}
		if err := <-errs; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != torchQueryTime {
			t.Errorf("the second, after %v: %v", time.Since(begin), err)
		}
	})
}

// TestSecondConnectionStays has a 1.13 client keep its silent second connection while strangers connect after it.
func TestSecondConnectionStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &torchMux{
			ctx: t.Context(), store: newMemory(), log: slog.New(slog.DiscardHandler), maxConns: 8,
			allowance: budget{most: MaxTorchBytes}, pending: pendingConns{room: 1},
		}
		var ends []net.Conn
		for _, from := range []string{"::1", "::1", "::2", "::3"} {
			near, far := net.Pipe()
			defer near.Close()
			ends = append(ends, near)
			go d.dispatch(connFrom{far, from})
			if len(ends) == 1 {
				send(t, near, "\x06")
				expectBytes(t, near, le8(0))
			}
			synctest.Wait()
		}
		for i, end := range ends {
			end.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := end.Read(make([]byte, 1)); errors.Is(err, io.EOF) != (i == 2) {
				t.Errorf("connection %d: %v", i, err)
			}
		}
		if n := d.slots.Load(); n != 2 {
			t.Errorf("the client takes %d slots, want 2", n)
		}
		for _, end := range ends {
			end.Close()
		}
		synctest.Wait()
		if n := d.slots.Load(); n != 0 || len(d.pending.clients) != 0 || pendingCount(&d.pending) != 0 {
			t.Errorf("left: %d slots, clients %v, %d pending", n, d.pending.clients, pendingCount(&d.pending))
		}
	})
}

// TestHelloTakesNoPlace has more strangers than there are slots send only the later hello, so they stay pending. A client that connects
// after them and sends a query is served, and stays when more strangers connect.
func TestHelloTakesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log testkit.Journal
		d := &torchMux{
			ctx: t.Context(), store: newMemory(), log: log.Logger(), maxConns: 2,
			allowance: budget{most: MaxTorchBytes}, replies: budget{most: MaxTorchReplies}, pending: pendingConns{room: 3},
		}
		come := func(words string) net.Conn {
			near, far := net.Pipe()
			t.Cleanup(func() { near.Close() })
			go d.dispatch(connFrom{far, "::1"})
			send(t, near, words)
			return near
		}
		var strangers []net.Conn
		for range 3 {
			strangers = append(strangers, come(torchHello))
		}
		time.Sleep(time.Hour) // they may be silent for any length of time
		client := come(torchHello)
		send(t, client, "\x0d\x01\x02\x03\x04")
		expectBytes(t, client, "\x01\x02\x03\x04")
		for range 3 {
			strangers = append(strangers, come(torchHello))
		}
		synctest.Wait()
		send(t, client, "\x0d\x05\x06\x07\x08")
		expectBytes(t, client, "\x05\x06\x07\x08")
		if n := pendingCount(&d.pending); n != 3 || d.slots.Load() != 1 {
			t.Errorf("%d are pending, and %d slots are taken; want 3 and 1", n, d.slots.Load())
		}
		for i, conn := range strangers {
			conn.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := conn.Read(make([]byte, 1)); errors.Is(err, io.EOF) != (i < 3) {
				t.Errorf("stranger %d: %v", i, err)
			}
			conn.Close()
		}
		client.Close()
		synctest.Wait()
		if n := len(log.Lines()); n != 3 || pendingCount(&d.pending) != 0 || d.slots.Load() != 0 {
			t.Errorf("%d are still pending, %d slots are taken; log: %s", pendingCount(&d.pending), d.slots.Load(), log.String())
		}
	})
}

// TestTorchIsOffByDefault checks that PyTorch's clients are refused by default.
func TestTorchIsOffByDefault(t *testing.T) {
	s := serve(t, ServerConfig{})
	for _, hello := range []string{torchHello + "\x0d\x01\x02\x03\x04", "\x03" + str("init/") + le8(1)} {
		expectEnd(t, dialTorch(t, s, hello))
	}
	if n, err := s.NumKeys(bounded(t), ""); n != 0 || err != nil {
		t.Errorf("%d keys, %v", n, err)
	}
}

// TestHostileTorchClientEndsAlone sends what no client sends. Only its own connection ends, and that is logged.
func TestHostileTorchClientEndsAlone(t *testing.T) {
	var log testkit.Journal
	s := serve(t, ServerConfig{Torch: true, Log: log.Logger()})
	ours, theirs := connect(t, s), dialTorch(t, s, torchHello)
	for name, words := range map[string]string{
		"wrong magic":           "\x00\xce\xf7\x85\x3d" + "\x00\x00\x00\x00",
		"hello twice":           torchHello + torchHello,
		"unknown query":         torchHello + "\x63",
		"first unserved query":  torchHello + "\x11",
		"huge value to push":    torchHello + "\x0e" + str("/q") + le8(MaxValue+1),
		"pop of a huge key":     torchHello + "\x0f" + le8(MaxKey+1),
		"watching":              "\x07" + str("/k"),
		"huge key":              torchHello + "\x03" + le8(MaxKey+1),
		"huger key":             "\x02" + le8(1<<63),
		"huge value":            torchHello + "\x01" + str("/k") + le8(MaxValue+1),
		"huge list":             torchHello + "\x06" + le8(MaxRequestKeys+1),
		"huge list of values":   torchHello + "\x0b" + le8(1<<64-1),
		"too much together":     torchHello + "\x06" + le8(4000) + strings.Repeat(str(strings.Repeat("k", MaxKey)), 4000),
		"too many bytes to set": torchHello + "\x0b" + le8(3) + strings.Repeat(str("k")+str(strings.Repeat("v", MaxValue-100)), 3),
		"no number":             torchHello + "\x01" + str("/w") + str("word") + "\x04" + str("/w") + le8(1),
		"get of nothing":        "\x02" + str("/nothing"),
	} {
		t.Run(name, func(t *testing.T) {
			before := len(log.Lines())
			conn := dialTorch(t, s, "")
			go io.WriteString(conn, words) // the server may close it before it has read everything
			expectEnd(t, conn)
			testkit.Eventually(t, "it is logged", func() bool { return len(log.Lines()) > before })
			if line := log.Lines()[before]; !strings.Contains(line, "dropped") || !strings.Contains(line, conn.LocalAddr().String()) {
				t.Errorf("log: %s", line)
			}
			if err := ours.Set(bounded(t), "k", []byte(name)); err != nil {
				t.Errorf("our client: %v", err)
			}
			send(t, theirs, "\x03"+str("k"))
			expectBytes(t, theirs, str(name))
		})
	}
	if n, err := s.NumKeys(bounded(t), ""); n != 2 || err != nil {
		t.Errorf("%d keys, %v; want k and /w", n, err)
	}
}

// TestTorchRubbishDisturbsNobody has many strangers send rubbish or nothing, and stay connected, while clients of each kind connect and
// work.
func TestTorchRubbishDisturbsNobody(t *testing.T) {
	s := serve(t, ServerConfig{Torch: true})
	for i := range 400 {
		dialTorch(t, s, []string{"", "\x00", "\x05" + le8(7), "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01", "d"}[i%6])
		if i%100 != 99 {
			continue
		}
		if err := connect(t, s).Set(bounded(t), "k", []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		expectBytes(t, dialTorch(t, s, torchHello+"\x03"+str("k")), str(string([]byte{byte(i)})))
	}
}

// TestAllInterfacesAreWarnedOf listens on all interfaces, where every machine can connect, and checks the warning in the log.
func TestAllInterfacesAreWarnedOf(t *testing.T) {
	for _, torch := range []bool{true, false} {
		l, err := net.Listen("tcp", ":0")
		if err != nil {
			t.Fatal(err)
		}
		var log testkit.Journal
		Serve(l, ServerConfig{Secret: secret, Binding: binding, Torch: torch, Log: log.Logger()}).Close()
		if warned := strings.Contains(log.String(), "one interface"); warned != torch {
			t.Errorf("torch %v: log %q", torch, log.String())
		}
	}
}

// TestTorchClientsAreBounded connects while all slots, or all files, are in use.
func TestTorchClientsAreBounded(t *testing.T) {
	for files, clients := range map[int]int64{1 << 20: MaxTorchClients, 100: 100} {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		d := &torchMux{ctx: t.Context(), store: newMemory(), maxConns: files}
		d.slots.Store(clients)
		if err := d.serve(far, nil, torch2); err == nil || d.slots.Load() != clients {
			t.Errorf("%d files: error %v, %d slots", files, err, d.slots.Load())
		}
		d.slots.Store(clients - 1)
		if err := d.serve(far, nil, torch1); err == nil || d.slots.Load() != clients-1 {
			t.Errorf("%d files, of 1.13: error %v, %d slots", files, err, d.slots.Load())
		}
	}
}
