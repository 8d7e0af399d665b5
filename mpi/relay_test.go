package mpi

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"

	"ddpbatch/mpi/store"
)

// relay stands in the way to one rank, and cuts its connections when enough has passed.
type relay struct {
	listener net.Listener
	tasks    sync.WaitGroup
	limit    atomic.Int64 // bytes; 0 for none
	passed   atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
}

// relayed is a store in which a rank publishes the relay's address for its own.
type relayed struct {
	store.Store
	relay *relay
}

func (s relayed) Set(ctx context.Context, key string, value []byte) error {
	if strings.Contains(key, "transport/") {
		target, machine, _ := strings.Cut(string(value), " ")
		addr, err := s.relay.listen(target)
		if err != nil {
			return err
		}
		value = []byte(addr + " " + machine)
	}
	return s.Store.Set(ctx, key, value)
}

func (r *relay) listen(target string) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	r.listener = l
	r.tasks.Go(func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", target)
			if err != nil {
				from.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, from, to)
			r.mu.Unlock()
			r.tasks.Go(func() { io.Copy(counter{to, r}, from) })
			r.tasks.Go(func() { io.Copy(counter{from, r}, to) })
		}
	})
	return l.Addr().String(), nil
}

// counter is one direction of a relayed connection.
type counter struct {
	net.Conn
	relay *relay
}

func (c counter) Write(p []byte) (int, error) {
	limit := c.relay.limit.Load()
	if passed := c.relay.passed.Add(int64(len(p))); limit > 0 && passed > limit {
		c.relay.cut()
	}
	return c.Conn.Write(p)
}

func (r *relay) cutAfter(bytes int64) { r.limit.Store(r.passed.Load() + bytes) }

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, conn := range r.conns {
		conn.Close()
	}
}

func (r *relay) close() {
	r.listener.Close()
	r.cut()
	r.tasks.Wait()
}
