package store

import (
	"io"
	"net"
	"strings"
	"testing"

	"ddpbatch/internal/testkit"
)

// TestTorchIsOffByDefault has PyTorch's clients refused.
func TestTorchIsOffByDefault(t *testing.T) {
	s := serve(t, ServerConfig{})
	for _, hello := range []string{torchHello + "\x0d\x01\x02\x03\x04", "\x03" + str("init/") + le8(1)} {
		expectEnd(t, dialTorch(t, s, hello))
	}
	if n, err := s.NumKeys(bounded(t), ""); n != 0 || err != nil {
		t.Errorf("%d keys, %v", n, err)
	}
}

// TestHostileTorch sends what no client sends: its connection ends, no other does, and somebody hears of it.
func TestHostileTorch(t *testing.T) {
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
			go io.WriteString(conn, words) // the server may end it before it has heard all
			expectEnd(t, conn)
			testkit.Eventually(t, "it is logged", func() bool { return len(log.Lines()) > before })
			if line := log.Lines()[before]; !strings.Contains(line, "dropped") || !strings.Contains(line, conn.LocalAddr().String()) {
				t.Errorf("log: %s", line)
			}
			if err := ours.Set(bounded(t), "k", []byte(name)); err != nil {
				t.Errorf("our client: %v", err)
			}
			say(t, theirs, "\x03"+str("k"))
			hear(t, theirs, str(name))
		})
	}
	if n, err := s.NumKeys(bounded(t), ""); n != 2 || err != nil {
		t.Errorf("%d keys, %v; want k and /w", n, err)
	}
}

// TestTorchRubbish has many strangers say rubbish or nothing, and stay, while clients of each kind come and work.
func TestTorchRubbish(t *testing.T) {
	s := serve(t, ServerConfig{Torch: true})
	for i := range 400 {
		dialTorch(t, s, []string{"", "\x00", "\x05" + le8(7), "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x02\x00\x01", "d"}[i%6])
		if i%100 != 99 {
			continue
		}
		if err := connect(t, s).Set(bounded(t), "k", []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		hear(t, dialTorch(t, s, torchHello+"\x03"+str("k")), str(string([]byte{byte(i)})))
	}
}

// TestAllInterfacesAreWarnedOf listens where every machine reaches it.
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
