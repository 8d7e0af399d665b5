package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// torchMux is the protocol multiplexer of a server that serves PyTorch's clients, too: a listener that distinguishes connections by
// their first bytes. A connection that begins with the number of a query is a PyTorch client's, and is served here. Accept returns
// all others, for the gate. (A ddpbatch client begins with a letter.)
type torchMux struct {
	net.Listener
	ctx       context.Context // ends with the server
	store     *memory
	prefix    string
	log       *slog.Logger
	allowance budget // bytes for queries
	replies   budget // bytes for replies
	maxConns  int    // the most connections of each kind, as each takes a file
	accepted  chan acceptResult
	tasks     sync.WaitGroup
	pending   pendingConns
	slots     atomic.Int64 // slots that clients have taken
	dropped   atomic.Int64
}

type acceptResult struct {
	conn net.Conn
	err  error
}

func newTorchMux(ctx context.Context, l net.Listener, store *memory, cfg *ServerConfig, log *slog.Logger) *torchMux {
	files := quarterOfFiles()
	m := &torchMux{
		Listener: l, ctx: ctx, store: store, prefix: cfg.TorchPrefix, log: log,
		allowance: budget{most: MaxTorchBytes}, replies: budget{most: MaxTorchReplies}, maxConns: files,
		accepted: make(chan acceptResult), pending: pendingConns{room: max(1, min(MaxTorchSilent, files))},
	}
	m.tasks.Go(m.run)
	return m
}

// quarterOfFiles is a quarter of the files that this process may open. Hosts that prove nothing must not take all of them.
func quarterOfFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	return int(min(limit.Cur/4, math.MaxInt))
}

// Accept returns the next connection that is not a PyTorch client's.
func (m *torchMux) Accept() (net.Conn, error) {
	select {
	case a := <-m.accepted:
		return a.conn, a.err
	case <-m.ctx.Done():
		return nil, net.ErrClosed
	}
}

// run accepts connections until the listener is closed. After an error it goes on when Accept is called again, which the gate does
// after a pause.
func (m *torchMux) run() {
	for {
		conn, err := m.Listener.Accept()
		if err == nil {
			m.tasks.Go(func() { m.dispatch(conn) })
			continue
		}
		select {
		case m.accepted <- acceptResult{nil, err}:
		case <-m.ctx.Done():
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// dispatch serves a connection, or passes it to Accept.
func (m *torchMux) dispatch(conn net.Conn) {
	stop := context.AfterFunc(m.ctx, func() { conn.Close() })
	first, form, err := m.identify(conn)
	if form == torch1 && len(first) > 0 && first[0] > torch1Delete {
		stop()
		select {
		case m.accepted <- acceptResult{&peekedConn{conn, first}, nil}:
		case <-m.ctx.Done():
			conn.Close()
		}
		return
	}
	defer stop()
	defer conn.Close()
	if err == nil {
		err = m.serve(conn, first, form)
	}
	if err != nil && err != errNoQuery {
		m.logDropped(conn, err)
	}
}

// logDropped logs why a client was dropped: for the first ones, and then ever more rarely, so that a flood does not fill the log.
func (m *torchMux) logDropped(conn net.Conn, err error) {
	n := m.dropped.Add(1)
	if m.ctx.Err() == nil && (n <= 16 || n&(n-1) == 0) {
		m.log.Warn("store: PyTorch client dropped", "remote", conn.RemoteAddr().String(), "err", err, "so_far", n)
	}
}

// torchQueryTime limits how long a query may take once it has begun to arrive, and how long a client may take to receive a reply.
const torchQueryTime = 30 * time.Second

// identify reads as many first bytes of a connection as it needs to find out whose it is. It returns these bytes, except those of
// torch2's hello, which are not needed any more. A connection that ends without a byte, or with only a hello, gives errNoQuery.
// Until its kind is known, the connection is pending.
func (m *torchMux) identify(conn net.Conn) (first []byte, form torchForm, err error) {
	if err := tune(conn); err != nil {
		return nil, 0, err
	}
	m.pending.add(conn)
	first, err = readFirst(conn)
	switch kept := m.pending.remove(conn); {
	case !kept:
		return nil, 0, errors.New("it had sent nothing when too many others came after it")
	case len(first) == 0, string(first) == torchHello:
		return nil, 0, errNoQuery
	case err != nil:
		return nil, 0, err
	case len(first) > len(torchHello):
		return first[len(torchHello):], torch2, nil
	}
	return first, torch1, nil
}

// readFirst reads the first byte, however late it comes. If torch2's hello begins with it, it reads the rest of the hello. After a
// hello it also reads the next byte, however late that comes: anyone can send a hello, which does not take a slot.
func readFirst(conn net.Conn) ([]byte, error) {
	const hello = len(torchHello)
	first := make([]byte, hello+1)
	if n, err := conn.Read(first[:1]); n == 0 || first[0] != torchHello[0] {
		return first[:n], err
	}
	if err := conn.SetReadDeadline(time.Now().Add(torchQueryTime)); err != nil {
		return first[:1], err
	}
	n, err := io.ReadFull(conn, first[1:hello])
	if err != nil || string(first[:hello]) != torchHello {
		return first[:1+n], err
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return first[:hello], err
	}
	n, err = io.ReadFull(conn, first[hello:])
	return first[:hello+n], err
}

// errNoQuery means that a connection ended without a query. It is not logged.
var errNoQuery = errors.New("silent")

// serve serves a PyTorch client whose first bytes were read already.
func (m *torchMux) serve(conn net.Conn, first []byte, form torchForm) error {
	slots := int64(1)
	if form == torch1 {
		slots = 2 // one is for its second connection
	}
	defer m.slots.Add(-slots)
	if n := m.slots.Add(slots); n > MaxTorchClients || n > int64(m.maxConns) {
		return fmt.Errorf("PyTorch clients have %d slots already, and this one needs %d", n-slots, slots)
	}
	if form == torch1 {
		host := hostOf(conn)
		m.pending.countClient(host, 1)
		defer m.pending.countClient(host, -1)
	}
	peeked := &peekedConn{conn, first}
	s := &torchSession{
		store: m.store, conn: peeked, replies: &m.replies, out: bufio.NewWriterSize(peeked, smallReply),
		in: torchReader{r: bufio.NewReaderSize(peeked, 4<<10), form: form, prefix: m.prefix, allowance: &m.allowance},
	}
	return s.serve(m.ctx)
}

// peekedConn is a connection whose first bytes were read already.
type peekedConn struct {
	net.Conn
	first []byte
}

func (c *peekedConn) Read(p []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.first)
	c.first = c.first[n:]
	return n, nil
}

// pendingConns holds connections that have not sent enough to be identified, or only a hello. The second connection of a PyTorch
// 1.13 client never does, and is never closed: from each host, as many of the oldest connections stay as it has such clients. There
// is limited room for all others; if there are too many, the oldest is closed.
type pendingConns struct {
	room    int
	mu      sync.Mutex
	conns   []pendingConn      // oldest first
	clients map[netip.Addr]int // how many PyTorch 1.13 clients are served, by host
}

type pendingConn struct {
	conn net.Conn
	host netip.Addr
}

// hostOf is the other end's address without the port, or the zero Addr if the connection is not TCP.
func hostOf(conn net.Conn) netip.Addr {
	addr, _ := conn.RemoteAddr().(*net.TCPAddr)
	return addr.AddrPort().Addr().Unmap()
}

// add adds conn, until remove. It closes the oldest if there is no room.
func (p *pendingConns) add(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = append(p.conns, pendingConn{conn, hostOf(conn)})
	p.evict()
}

// remove removes conn, and reports whether it was still pending.
func (p *pendingConns) remove(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.conns, func(c pendingConn) bool { return c.conn == conn })
	if i < 0 {
		return false
	}
	p.conns = slices.Delete(p.conns, i, i+1)
	return true
}

// countClient counts a PyTorch 1.13 client of the host that comes (+1) or leaves (-1).
func (p *pendingConns) countClient(host netip.Addr, change int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.clients == nil {
		p.clients = make(map[netip.Addr]int)
	}
	if p.clients[host] += change; p.clients[host] == 0 {
		delete(p.clients, host)
	}
	p.evict()
}

// evict closes the connections for which there is no room. mu is held.
func (p *pendingConns) evict() {
	if len(p.conns) <= p.room {
		return
	}
	kept := make(map[netip.Addr]int)
	var evictable []net.Conn
	for _, c := range p.conns {
		if kept[c.host] < p.clients[c.host] {
			kept[c.host]++
			continue
		}
		evictable = append(evictable, c.conn)
	}
	for _, conn := range evictable[:max(0, len(evictable)-p.room)] {
		conn.Close() // its read fails
		p.conns = slices.DeleteFunc(p.conns, func(c pendingConn) bool { return c.conn == conn })
	}
}
