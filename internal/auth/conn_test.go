package auth

import (
	"bytes"
	"io"
	"net"
	"time"
)

// script is a connection that plays what in holds and keeps what is written.
type script struct {
	net.Conn
	in  io.Reader
	out bytes.Buffer
}

func (s *script) Read(p []byte) (int, error)  { return s.in.Read(p) }
func (s *script) Write(p []byte) (int, error) { return s.out.Write(p) }
func (s *script) SetDeadline(time.Time) error { return nil }

// later is a reader whose contents are made up at the first read.
type later struct {
	make func() []byte
	r    io.Reader
}

func (l *later) Read(p []byte) (int, error) {
	if l.r == nil {
		l.r = bytes.NewReader(l.make())
	}
	return l.r.Read(p)
}

// recording keeps what goes over a connection.
type recording struct {
	net.Conn
	sent, received bytes.Buffer
}

func (r *recording) Write(p []byte) (int, error) {
	r.sent.Write(p)
	return r.Conn.Write(p)
}

func (r *recording) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.received.Write(p[:n])
	return n, err
}
