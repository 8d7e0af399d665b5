package exposition

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"ddpbatch/internal/pause"
)

// This file implements an HTTP/1.0 server of one page (RFC 1945), which every client of HTTP/1.1 understands. net/http would do the same,
// but make the program 1.8 MB larger, and each agent would have the parts of it that it uses in memory.

const (
	metricsPath    = "/metrics"
	maxConnections = 8
	maxRequest     = 16 << 10        // bytes
	answerLimit    = 5 * time.Second // for a whole connection
	acceptPause    = time.Second     // after an error of Accept, such as too many open files
)

// serve answers requests to l, until ctx ends. It closes l.
func (e *exporter) serve(ctx context.Context, l net.Listener) {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	places := make(chan struct{}, maxConnections)
	for {
		places <- struct{}{}
		conn, err := l.Accept()
		if err != nil {
			<-places
			if pause.For(ctx, acceptPause) != nil {
				return
			}
			continue
		}
		go func() {
			defer func() { <-places }()
			defer conn.Close()
			if conn.SetDeadline(time.Now().Add(answerLimit)) == nil {
				_, _ = conn.Write(e.reply(readRequest(conn))) // after an error the client asks again
			}
		}()
	}
}

// request holds the parts of a request that are used.
type request struct {
	method, path string
	as           format // the format that the client asks for
}

var errRequest = errors.New("this is not a request of HTTP/1")

// readRequest reads a request to the end of its header.
func readRequest(r io.Reader) (q request, err error) {
	lines := bufio.NewScanner(io.LimitReader(r, maxRequest))
	lines.Buffer(nil, maxRequest)
	if !lines.Scan() {
		return q, errRequest
	}
	words := strings.Split(lines.Text(), " ")
	if len(words) != 3 || !strings.HasPrefix(words[2], "HTTP/1.") {
		return q, errRequest
	}
	q.method = words[0]
	q.path, _, _ = strings.Cut(words[1], "?")
	for lines.Scan() {
		if lines.Text() == "" {
			return q, nil
		}
		name, value, _ := strings.Cut(lines.Text(), ":")
		if strings.EqualFold(name, "Accept") && strings.Contains(strings.ToLower(value), "application/openmetrics-text") {
			q.as = openMetrics
		}
	}
	return q, errRequest
}

// reply returns the whole answer to a request.
func (e *exporter) reply(q request, err error) []byte {
	refuse := func(status, more, why string) []byte {
		return page(status, more+"Content-Type: text/plain; charset=utf-8", []byte(why+"\n"))
	}
	newest := e.newest.Load()
	switch {
	case err != nil:
		return refuse("400 Bad Request", "", err.Error())
	case q.path != metricsPath:
		return refuse("404 Not Found", "", "the only path is "+metricsPath)
	case q.method != "GET":
		return refuse("405 Method Not Allowed", "Allow: GET\r\n", "the only request is GET "+metricsPath)
	case newest == nil:
		return refuse("503 Service Unavailable", "Retry-After: 5\r\n", "the run's ledger and metrics are still being read")
	}
	return page("200 OK", "Content-Type: "+q.as.contentType(), newest.write(q.as, e.labels))
}

func page(status, header string, body []byte) []byte {
	return append(fmt.Appendf(nil, "HTTP/1.0 %s\r\n%s\r\nContent-Length: %d\r\n\r\n", status, header, len(body)), body...)
}
