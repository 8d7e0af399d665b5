package store

import (
	"bufio"
	"net"
	"sync"
)

// Client is a Store at the other end of one TCP connection, which all
// goroutines share: a call that waits for a key holds up no other.
//
// When the connection is lost, every call gets a *LostError; a Client does not connect again.
type Client struct {
	conn  net.Conn
	out   chan []byte // frames to send
	tasks sync.WaitGroup

	mu     sync.Mutex
	calls  map[uint64]chan reply // by request id; nil when the connection has ended
	lastID uint64
	err    error
	done   chan struct{}
}

// newClient speaks over a connection on which both sides have proved themselves.
func newClient(conn net.Conn) *Client {
	c := &Client{conn: conn, out: make(chan []byte, 64), calls: make(map[uint64]chan reply), done: make(chan struct{})}
	c.tasks.Go(c.send)
	c.tasks.Go(c.receive)
	return c
}

// Done is closed when the connection has ended; Err then says why.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err is nil while the connection lives, ErrClosed after Close, else a *LostError.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// LocalAddr is the address of this machine that the connection has.
func (c *Client) LocalAddr() net.Addr { return c.conn.LocalAddr() }

// RemoteAddr is the address by which the store was reached.
func (c *Client) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// Close ends the connection, and every call that is under way. The store at the other end lives on.
func (c *Client) Close() error {
	c.end(ErrClosed)
	c.tasks.Wait()
	return nil
}

// end closes the connection; the first reason stands.
func (c *Client) end(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return
	}
	c.err, c.calls = reason, nil
	close(c.done)
	c.conn.Close()
}

func (c *Client) lost(err error) {
	c.end(&LostError{Addr: c.conn.RemoteAddr().String(), Err: err})
}

func (c *Client) send() {
	w := bufio.NewWriterSize(c.conn, 16<<10)
	for {
		select {
		case frame := <-c.out:
			_, err := w.Write(frame)
			if err == nil && len(c.out) == 0 {
				err = w.Flush()
			}
			if err != nil {
				c.lost(err)
				return
			}
		case <-c.done:
			return
		}
	}
}

func (c *Client) receive() {
	r := bufio.NewReaderSize(c.conn, 16<<10)
	for {
		frame, err := readFrame(r, nil)
		if err != nil {
			c.lost(err)
			return
		}
		rep, err := parseReply(frame)
		if err != nil {
			c.lost(err)
			return
		}
		c.mu.Lock()
		answer, ok := c.calls[rep.id]
		delete(c.calls, rep.id)
		c.mu.Unlock()
		if ok { // else the caller did not wait for it
			answer <- rep
		}
	}
}

// expect gives a request its id and a place for the reply.
func (c *Client) expect(req *request) (chan reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	c.lastID++
	req.id = c.lastID
	answer := make(chan reply, 1)
	c.calls[req.id] = answer
	return answer, nil
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
}
