package store

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// Client is a Store at the other end of one TCP connection. All goroutines share the connection: a call that waits for a key does
// not delay others.
//
// When the connection is lost, every call returns a *LostError. A Client does not connect again.
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

// newClient returns a Client for a connection on which both sides have proved themselves.
func newClient(conn net.Conn) *Client {
	c := &Client{conn: conn, out: make(chan []byte, 64), calls: make(map[uint64]chan reply), done: make(chan struct{})}
	c.tasks.Go(c.send)
	c.tasks.Go(c.receive)
	return c
}

func (c *Client) Set(ctx context.Context, key string, value []byte) error {
	_, err := c.do(ctx, &request{op: opSet, key: key, value: value})
	return err
}

func (c *Client) Get(ctx context.Context, key string) ([]byte, error) {
	return c.do(ctx, &request{op: opGet, key: key})
}

func (c *Client) Add(ctx context.Context, key string, delta int64) (int64, error) {
	return ask(ctx, c, &request{op: opAdd, key: key, delta: delta}, result.number)
}

func (c *Client) CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error) {
	return ask(ctx, c, &request{op: opCompareSet, key: key, expected: expected, value: desired}, result.optional)
}

func (c *Client) Wait(ctx context.Context, keys ...string) error {
	_, err := c.do(ctx, &request{op: opWait, keys: keys})
	return err
}

func (c *Client) Delete(ctx context.Context, key string) (bool, error) {
	return ask(ctx, c, &request{op: opDelete, key: key}, result.bool)
}

func (c *Client) Append(ctx context.Context, key string, value []byte) error {
	_, err := c.do(ctx, &request{op: opAppend, key: key, value: value})
	return err
}

func (c *Client) Check(ctx context.Context, keys ...string) (bool, error) {
	return ask(ctx, c, &request{op: opCheck, keys: keys}, result.bool)
}

func (c *Client) NumKeys(ctx context.Context, prefix string) (int, error) {
	n, err := ask(ctx, c, &request{op: opNumKeys, key: prefix}, result.number)
	return int(n), err
}

func (c *Client) List(ctx context.Context, prefix string) ([]string, error) {
	list, err := ask(ctx, c, &request{op: opList, key: prefix}, result.list)
	if err != nil {
		return nil, err
	}
	keys := make([]string, len(list))
	for i, key := range list {
		keys[i] = string(key)
	}
	return keys, nil
}

func (c *Client) MultiGet(ctx context.Context, keys ...string) ([][]byte, error) {
	values, err := ask(ctx, c, &request{op: opMultiGet, keys: keys}, result.list)
	if err == nil && len(values) != len(keys) {
		err = fmt.Errorf("%w: %d values for %d keys", errMalformed, len(values), len(keys))
	}
	return values, err
}

func (c *Client) MultiSet(ctx context.Context, items ...Item) error {
	_, err := c.do(ctx, &request{op: opMultiSet, items: items})
	return err
}

// Done returns a channel that is closed when the connection has ended. Err then returns why.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err is nil while the connection lives, ErrClosed after Close, and otherwise a *LostError.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// LocalAddr is the connection's address on this machine.
func (c *Client) LocalAddr() net.Addr { return c.conn.LocalAddr() }

// RemoteAddr is the address by which the store was reached.
func (c *Client) RemoteAddr() net.Addr { return c.conn.RemoteAddr() }

// Close ends the connection, and all pending calls. The store at the other end stays open.
func (c *Client) Close() error {
	c.end(ErrClosed)
	c.tasks.Wait()
	return nil
}

// cancelGrace is how long a canceled call waits for the server's reply.
const cancelGrace = 250 * time.Millisecond

// ask sends a request and decodes the result.
func ask[T any](ctx context.Context, c *Client, req *request, read func(result) (T, error)) (value T, err error) {
	res, err := c.do(ctx, req)
	if err != nil {
		return value, err
	}
	return read(res)
}

// do sends a request and returns the server's result. When ctx ends first, it sends the server a cancel. The server then has
// cancelGrace to reply which keys are missing, or that the request was carried out after all.
func (c *Client) do(ctx context.Context, req *request) (result, error) {
	if err := req.check(); err != nil {
		return nil, fmt.Errorf("%v: %w", req, err)
	}
	if ctx.Err() != nil {
		return nil, unsentError(ctx, req)
	}
	answer, err := c.expect(req)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", req, err)
	}
	defer c.forget(req.id)
	select {
	case c.out <- req.frame():
	case <-c.done:
		return nil, fmt.Errorf("%v: %w", req, c.Err())
	case <-ctx.Done():
		return nil, unsentError(ctx, req)
	}
	select {
	case rep := <-answer:
		return rep.outcome(ctx, req)
	case <-c.done:
		return c.replyBeforeEnd(ctx, req, answer)
	case <-ctx.Done():
	}

	grace := time.NewTimer(cancelGrace)
	defer grace.Stop()
	cancel := &request{id: req.id, op: opCancel}
	select {
	case c.out <- cancel.frame():
	case <-c.done:
		return c.replyBeforeEnd(ctx, req, answer)
	case <-grace.C:
		return nil, unansweredError(ctx, req)
	}
	select {
	case rep := <-answer:
		return rep.outcome(ctx, req)
	case <-c.done:
		return c.replyBeforeEnd(ctx, req, answer)
	case <-grace.C:
		return nil, unansweredError(ctx, req)
	}
}

// replyBeforeEnd returns the reply that came before the connection ended, if there is one.
func (c *Client) replyBeforeEnd(ctx context.Context, req *request, answer <-chan reply) (result, error) {
	select {
	case rep := <-answer:
		return rep.outcome(ctx, req)
	default:
		return nil, fmt.Errorf("%v: %w", req, c.Err())
	}
}

// unsentError is the error of a request that was not sent before its context ended.
func unsentError(ctx context.Context, req *request) error {
	if keys := req.awaited(); keys != nil {
		return &WaitError{Keys: keys, Err: ctx.Err()}
	}
	return fmt.Errorf("%v: %w", req, ctx.Err())
}

// unansweredError is the error of a request that was sent, but not answered by the end of its context and cancelGrace.
func unansweredError(ctx context.Context, req *request) error {
	if keys := req.awaited(); keys != nil {
		return &WaitError{Keys: keys, Err: fmt.Errorf("%w, and the server does not answer", ctx.Err())}
	}
	return fmt.Errorf("%v: %w, and the server does not answer: whether it was done is not known", req, ctx.Err())
}

// expect gives a request its id and a channel for the reply.
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
		if ok { // otherwise the caller has given up
			answer <- rep
		}
	}
}

// end closes the connection. The first reason counts.
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
