package exposition

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ddpbatch/internal/testkit"
)

// TestHTTPClientGetsTheFigures uses net/http's client, which speaks HTTP/1.1.
func TestHTTPClientGetsTheFigures(t *testing.T) {
	said, notes := &testkit.Journal{}, []string{}
	c := Config{
		Labels: digits, Listen: netip.MustParseAddrPort("127.0.0.1:0"), Log: said.Logger(),
		Note: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) },
	}
	e := newExporter(c, func(time.Time) (figures, error) { return trained(), nil })
	stop := e.start(t.Context(), c)
	testkit.Eventually(t, "figures", func() bool { return e.newest.Load() != nil })
	if len(notes) != 1 {
		t.Fatalf("%q; want the address", notes)
	}
	_, url, _ := strings.Cut(notes[0], " at ")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for name, test := range map[string]struct {
		method, url, accept string
		status              int
		kind                string
		as                  format
	}{
		"Prometheus": {"GET", url, "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2,*/*;q=0.1", 200,
			"application/openmetrics-text; version=1.0.0; charset=utf-8", openMetrics},
		"a browser":                 {"GET", url, "text/html,*/*;q=0.8", 200, "text/plain; version=0.0.4; charset=utf-8", prometheus},
		"one that asks for nothing": {"GET", url + "?name=x", "", 200, "text/plain; version=0.0.4; charset=utf-8", prometheus},
		"another page":              {"GET", strings.TrimSuffix(url, "metrics"), "", 404, "text/plain; charset=utf-8", 0},
		"below it":                  {"GET", url + "/../../etc/passwd", "", 404, "text/plain; charset=utf-8", 0},
		"another method":            {"DELETE", url, "", 405, "text/plain; charset=utf-8", 0},
	} {
		request, err := http.NewRequestWithContext(t.Context(), test.method, test.url, nil)
		must(t, err)
		request.Header.Set("Accept", test.accept)
		reply, err := client.Do(request)
		must(t, err)
		body, err := io.ReadAll(reply.Body)
		must(t, err)
		reply.Body.Close()
		if reply.StatusCode != test.status || reply.Header.Get("Content-Type") != test.kind || reply.ContentLength != int64(len(body)) {
			t.Errorf("%s: %s, %v, %d bytes", name, reply.Status, reply.Header, len(body))
		}
		if test.status == 200 && values(t, body, test.as, digits)["ddpbatch_step"] != 1234567 {
			t.Errorf("%s: %s", name, body)
		}
	}
	stop()
	if conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), metricsPath)); err == nil {
		conn.Close()
		t.Error("somebody listens after the end")
	}
	if lines := said.Lines(); len(lines) > 0 {
		t.Errorf("said: %q", lines)
	}
}

// pipes is a listener without a network, for fake time.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p <- theirs
	return ours
}

// TestSilentConnectionsEndInTime: if all possible connections are silent, a client that connects after them waits for some seconds only.
func TestSilentConnectionsEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newExporter(Config{Labels: digits}, func(time.Time) (figures, error) { return trained(), nil })
		e.update(t.Context())
		l := make(pipes)
		ctx, cancel := context.WithCancel(t.Context())
		var tasks sync.WaitGroup
		tasks.Go(func() { e.serve(ctx, l) })
		begin := time.Now()
		for i := range maxConnections {
			conn := l.dial()
			defer conn.Close()
			if i%2 == 0 { // a request that never ends
				tasks.Go(func() {
					for err := error(nil); err == nil; time.Sleep(time.Second) {
						_, err = io.WriteString(conn, "G")
					}
				})
			}
		}
		conn := l.dial()
		_, err := io.WriteString(conn, "GET /metrics HTTP/1.0\r\n\r\n")
		must(t, err)
		reply, err := io.ReadAll(conn)
		must(t, err)
		if took := time.Since(begin); took != answerLimit {
			t.Errorf("the answer took %v, want %v", took, answerLimit)
		}
		if _, body, _ := bytes.Cut(reply, []byte("\r\n\r\n")); values(t, body, prometheus, digits)["ddpbatch_step"] != 1234567 {
			t.Errorf("%s", reply)
		}
		cancel()
		tasks.Wait()
	})
}

func TestBadRequestsAreRefused(t *testing.T) {
	e := newExporter(Config{Labels: digits}, func(time.Time) (figures, error) { return trained(), nil })
	for name, test := range map[string]struct{ text, want string }{
		"before there are figures": {"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "503"},
		"nothing":                  {"", "400"},
		"no version":               {"GET /metrics\r\n\r\n", "400"},
		"HTTP/2":                   {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400"},
		"TLS":                      {"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400"},
		"no end":                   {"GET /metrics HTTP/1.1\r\nHost: x\r\n", "400"},
		"a long line":              {"GET /metrics HTTP/1.1\r\nX: " + strings.Repeat("x", maxRequest) + "\r\n\r\n", "400"},
		"many lines":               {"GET /metrics HTTP/1.1\r\n" + strings.Repeat("X: x\r\n", maxRequest/6) + "\r\n", "400"},
		"another path":             {"GET http://other/metrics HTTP/1.1\r\n\r\n", "404"},
		"HEAD":                     {"HEAD /metrics HTTP/1.1\r\n\r\n", "405"},
	} {
		reply := e.reply(readRequest(strings.NewReader(test.text)))
		if !bytes.HasPrefix(reply, []byte("HTTP/1.0 "+test.want+" ")) {
			t.Errorf("%s: %s, want %s", name, reply, test.want)
		}
	}
}

// FuzzRequest: whatever a client sends, readRequest returns what the request says in its first bytes.
func FuzzRequest(f *testing.F) {
	f.Add([]byte("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\r\n"))
	f.Add([]byte("POST /x?y HTTP/1.0\n\nbody"))
	f.Add([]byte("\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		q, err := readRequest(bytes.NewReader(data))
		if err != nil {
			return
		}
		head := data[:min(len(data), maxRequest)]
		if !bytes.HasPrefix(head, []byte(q.method+" "+q.path)) || !bytes.Contains(head, []byte(" HTTP/1.")) ||
			!bytes.Contains(head, []byte("\n")) ||
			strings.ContainsAny(q.method+q.path, " \n?") && !strings.Contains(q.method, "?") {
			t.Errorf("%+v is read of %q", q, data)
		}
		if q.as == openMetrics && !bytes.Contains(bytes.ToLower(head), []byte("accept")) {
			t.Errorf("OpenMetrics is read of %q", data)
		}
	})
}
