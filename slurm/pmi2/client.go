package pmi2

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

// ErrNone means that Slurm does not offer PMI-2 to this task.
var ErrNone = errors.New("Slurm does not offer PMI-2 here (srun --mpi=pmi2)")

// MaxText is the longest text that task 0 can send, in bytes: PMI2_MAX_VALLEN less one, less the quarter that base64 takes.
const MaxText = 1023 / 4 * 3

// finalizeWait bounds Close: Slurm answers at once, and a task may end without the answer.
const finalizeWait = time.Second

// Client is a task's connection to its slurmstepd. It may be used by one goroutine at a time.
type Client struct {
	wire  wire
	job   string
	rank  int // of this task in the step, from 0
	size  int
	calls int // how often FromZero was called
}

// Open takes over the socket that PMI_FD names. It does not change the environment. A caller that starts other programs
// should remove PMI_FD, PMI_RANK, PMI_SIZE and PMI_JOBID from their environment, as they do not inherit the descriptor.
func Open(lookup func(string) (string, bool)) (*Client, error) {
	text, ok := lookup("PMI_FD")
	if !ok || text == "" {
		return nil, ErrNone
	}
	c := new(Client)
	fd, err := strconv.Atoi(text)
	if err == nil {
		c.rank, err = number(lookup, "PMI_RANK")
	}
	if err == nil {
		c.size, err = number(lookup, "PMI_SIZE")
	}
	if err == nil && (c.size < 1 || c.rank < 0 || c.rank >= c.size || fd < 3) {
		err = fmt.Errorf("task %d of %d, descriptor %d", c.rank, c.size, fd)
	}
	if err != nil {
		return nil, fmt.Errorf("read the variables of PMI-2: %w", err)
	}
	if c.job, _ = lookup("PMI_JOBID"); !plain(c.job) {
		return nil, fmt.Errorf("read the variables of PMI-2: PMI_JOBID is %.40q", c.job)
	}
	conn, err := takeOver(fd)
	if err != nil {
		return nil, fmt.Errorf("use descriptor %d (PMI_FD): %w: %w", fd, err, ErrNone)
	}
	c.wire = newWire(conn)
	return c, nil
}

func number(lookup func(string) (string, bool), name string) (int, error) {
	text, _ := lookup(name)
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s is %.40q", name, text)
	}
	return n, nil
}

// takeOver makes a connection from an inherited descriptor, if it is a socket. A container may have closed the socket, and its number may
// belong to another file now.
func takeOver(fd int) (net.Conn, error) {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return nil, err
	}
	if stat.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		return nil, errors.New("it is not a socket")
	}
	file := os.NewFile(uintptr(fd), "PMI_FD")
	defer file.Close() // the connection has a descriptor of its own, which child processes do not inherit
	return net.FileConn(file)
}

// Rank returns this task's number in the step, from 0.
func (c *Client) Rank() int { return c.rank }

// Size returns how many tasks the step has.
func (c *Client) Size() int { return c.size }

// FromZero returns in every task the text that task 0 of the step passed; it ignores the text of other tasks. All tasks must call it
// equally often: it waits for them until ctx ends. The text may contain any bytes, up to MaxText.
// After an error the client can only be closed.
func (c *Client) FromZero(ctx context.Context, text string) (string, error) {
	if len(text) > MaxText && c.rank == 0 {
		return "", fmt.Errorf("send a text to the other tasks by PMI-2: its %d bytes are more than %d", len(text), MaxText)
	}
	got, err := c.fromZero(ctx, text)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return "", fmt.Errorf("exchange a text with the other tasks by PMI-2: %w", err)
	}
	return got, nil
}

func (c *Client) fromZero(ctx context.Context, text string) (string, error) {
	defer c.wire.until(ctx)()
	if err := c.begin(); err != nil {
		return "", err
	}
	c.calls++
	key := "ddpbatch/" + strconv.Itoa(c.calls)
	if c.rank == 0 {
		if _, err := c.wire.call("kvs-put", field{"key", key},
			field{"value", base64.RawURLEncoding.EncodeToString([]byte(text))}); err != nil {
			return "", err
		}
	}
	if _, err := c.wire.call("kvs-fence"); err != nil {
		return "", err
	}
	answer, err := c.wire.call("kvs-get", field{"jobid", c.job}, field{"srcid", "-1"}, field{"key", key})
	if err != nil {
		return "", err
	}
	if answer["found"] != "TRUE" {
		return "", errors.New("Slurm does not have the text of task 0")
	}
	data, err := base64.RawURLEncoding.DecodeString(answer["value"])
	if err != nil {
		return "", fmt.Errorf("read the text of task 0: %w", err)
	}
	return string(data), nil
}

// begin agrees on the version before the first call.
func (c *Client) begin() error {
	if c.calls > 0 {
		return nil
	}
	if err := c.wire.greet(); err != nil {
		return err
	}
	answer, err := c.wire.call("fullinit", field{"pmijobid", c.job}, field{"pmirank", strconv.Itoa(c.rank)}, field{"threaded", "FALSE"})
	if err != nil {
		return err
	}
	if answer["rank"] != strconv.Itoa(c.rank) || answer["size"] != strconv.Itoa(c.size) {
		return fmt.Errorf("Slurm says that this is task %.20s of %.20s, the environment says %d of %d", answer["rank"],
			answer["size"], c.rank, c.size)
	}
	return nil
}

// Close ends the connection. If Slurm does not confirm the end in time, Close returns no error: Slurm accepts that.
func (c *Client) Close() error {
	if c.calls > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), finalizeWait)
		defer cancel()
		defer c.wire.until(ctx)()
		_, _ = c.wire.call("finalize")
	}
	return c.wire.conn.Close()
}
