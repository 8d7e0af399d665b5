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

// torchDoor stands at the listener of a server that speaks PyTorch's wire, too, and parts connections by their first
// bytes: who begins with a query's number is a PyTorch client and served; all others are what the door's Accept
// returns, for the gate. (A ddpbatch begins with a letter.)
type torchDoor struct {
	net.Listener
	ctx       context.Context // ends with the server
	store     *memory
	prefix    string
	log       *slog.Logger
	allowance allowance // of queries
	replies   replyLine
	files     int // how many files a kind of connections may take
	came      chan accepted
	tasks     sync.WaitGroup
	silent    lobby
	places    atomic.Int64 // that clients take
	dropped   atomic.Int64
}

type accepted struct {
	conn net.Conn
	err  error
}

func newTorchDoor(ctx context.Context, l net.Listener, store *memory, cfg *ServerConfig, log *slog.Logger) *torchDoor {
	files := quarterOfFiles()
	d := &torchDoor{
		Listener: l, ctx: ctx, store: store, prefix: cfg.TorchPrefix, log: log,
		allowance: allowance{most: MaxTorchBytes}, replies: replyLine{most: MaxTorchReplies}, files: files, came: make(chan accepted),
		silent: lobby{room: max(1, min(MaxTorchSilent, files))},
	}
	d.tasks.Go(d.run)
	return d
}

// quarterOfFiles is a quarter of the files that this process may open. Strangers must not take them all.
func quarterOfFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	return int(min(limit.Cur/4, math.MaxInt))
}

// Accept returns the next connection that is no PyTorch client's.
func (d *torchDoor) Accept() (net.Conn, error) {
	select {
	case a := <-d.came:
		return a.conn, a.err
	case <-d.ctx.Done():
		return nil, net.ErrClosed
	}
}

// run accepts connections until the listener is closed. After an error it goes on when Accept is called again, which
// is when the gate has paused.
func (d *torchDoor) run() {
	for {
		conn, err := d.Listener.Accept()
		if err == nil {
			d.tasks.Go(func() { d.part(conn) })
			continue
		}
		select {
		case d.came <- accepted{nil, err}:
		case <-d.ctx.Done():
			return
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
	}
}

// part serves a connection, or hands it on.
func (d *torchDoor) part(conn net.Conn) {
	stop := context.AfterFunc(d.ctx, func() { conn.Close() })
	first, form, err := d.hear(conn)
	if form == torch1 && len(first) > 0 && first[0] > torch1Delete {
		stop()
		select {
		case d.came <- accepted{&heardConn{conn, first}, nil}:
		case <-d.ctx.Done():
			conn.Close()
		}
		return
	}
	defer stop()
	defer conn.Close()
	if err == nil {
		err = d.serve(conn, first, form)
	}
	if err != nil && err != errSilent {
		d.tell(conn, err)
	}
}

// tell logs why a client was dropped: of the first ones, and then of fewer and fewer, lest a flood fills the log.
func (d *torchDoor) tell(conn net.Conn, err error) {
	n := d.dropped.Add(1)
	if d.ctx.Err() == nil && (n <= 16 || n&(n-1) == 0) {
		d.log.Warn("store: PyTorch client dropped", "remote", conn.RemoteAddr().String(), "err", err, "so_far", n)
	}
}

// torchQueryTime is for a query that has begun to arrive, and for a reply to be taken once it is its turn.
const torchQueryTime = 30 * time.Second

// hear reads as many first bytes of a connection as it takes to tell whose they are; those of torch2's hello, which
// has then done its work, are not returned, and what begins the query after it is. A connection that ends without a
// byte, or with no more than a hello, gives errSilent. Until all is told, it is in the lobby.
func (d *torchDoor) hear(conn net.Conn) (first []byte, form torchForm, err error) {
	if err := tune(conn); err != nil {
		return nil, 0, err
	}
	d.silent.enter(conn)
	first, err = hearFirst(conn)
	switch stayed := d.silent.leave(conn); {
	case !stayed:
		return nil, 0, errors.New("it had not said yet whose it is when too many others came after it")
	case len(first) == 0, string(first) == torchHello:
		return nil, 0, errSilent
	case err != nil:
		return nil, 0, err
	case len(first) > len(torchHello):
		return first[len(torchHello):], torch2, nil
	}
	return first, torch1, nil
}

// hearFirst reads the first byte, whenever it comes, and where torch2's hello begins with it, as many as that has. Of what
// comes after a hello it also reads the first byte, whenever that comes: anybody can say hello, and it takes no place.
func hearFirst(conn net.Conn) ([]byte, error) {
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

// errSilent is the end of a connection that never said a word, of which nobody is told.
var errSilent = errors.New("silent")

// serve serves a PyTorch client, of which first was read already.
func (d *torchDoor) serve(conn net.Conn, first []byte, form torchForm) error {
	places := int64(1)
	if form == torch1 {
		places = 2 // the other is its second connection's
	}
	defer d.places.Add(-places)
	if n := d.places.Add(places); n > MaxTorchClients || n > int64(d.files) {
		return fmt.Errorf("PyTorch clients have %d places already, and it needs %d", n-places, places)
	}
	if form == torch1 {
		host := hostOf(conn)
		d.silent.serving(host, 1)
		defer d.silent.serving(host, -1)
	}
	heard := &heardConn{conn, first}
	s := &torchSession{
		store: d.store, conn: heard, replies: &d.replies, out: bufio.NewWriterSize(heard, smallReply),
		in: torchReader{r: bufio.NewReaderSize(heard, 4<<10), form: form, prefix: d.prefix, allowance: &d.allowance},
	}
	return s.serve(d.ctx)
}

// heardConn is a connection of which the first bytes were read already.
type heardConn struct {
	net.Conn
	first []byte
}

func (c *heardConn) Read(p []byte) (int, error) {
	if len(c.first) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.first)
	c.first = c.first[n:]
	return n, nil
}

// lobby holds connections that have not said yet whose they are, or no more than hello. A PyTorch 1.13 client's second one
// never does, and is never sent away: from each host as many stay as it has such clients, the oldest ones. Of all others there is room
// for some; when there is none for another, the oldest goes.
type lobby struct {
	room    int
	mu      sync.Mutex
	guests  []guest            // the oldest first
	clients map[netip.Addr]int // PyTorch 1.13's that are served, by host
}

type guest struct {
	conn net.Conn
	host netip.Addr
}

// hostOf is the other end's address, without its port; the zero Addr where it is not TCP's.
func hostOf(conn net.Conn) netip.Addr {
	addr, _ := conn.RemoteAddr().(*net.TCPAddr)
	return addr.AddrPort().Addr().Unmap()
}

// enter adds conn, until leave.
func (l *lobby) enter(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.guests = append(l.guests, guest{conn, hostOf(conn)})
	l.settle()
}

// leave tells whether conn was still there.
func (l *lobby) leave(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.guests, func(g guest) bool { return g.conn == conn })
	if i < 0 {
		return false
	}
	l.guests = slices.Delete(l.guests, i, i+1)
	return true
}

// serving counts a PyTorch 1.13 client of the host (+1), or one less (-1).
func (l *lobby) serving(host netip.Addr, change int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clients == nil {
		l.clients = make(map[netip.Addr]int)
	}
	if l.clients[host] += change; l.clients[host] == 0 {
		delete(l.clients, host)
	}
	l.settle()
}

// settle sends away those for whom there is no room. mu is held.
func (l *lobby) settle() {
	if len(l.guests) <= l.room {
		return
	}
	stay := make(map[netip.Addr]int)
	var others []net.Conn
	for _, g := range l.guests {
		if stay[g.host] < l.clients[g.host] {
			stay[g.host]++
			continue
		}
		others = append(others, g.conn)
	}
	for _, conn := range others[:max(0, len(others)-l.room)] {
		conn.Close() // its read fails
		l.guests = slices.DeleteFunc(l.guests, func(g guest) bool { return g.conn == conn })
	}
}
