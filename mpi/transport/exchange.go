package transport

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// maxWord is the largest size of a word of exchange, in bytes.
const maxWord = 32 << 10

// exchange sends word to every other rank, and returns the words of all ranks, by rank. All ranks must be connected, and nothing else may
// use the control connections yet.
func (c *connector) exchange(ctx context.Context, word []byte) ([][]byte, error) {
	if deadline, ok := ctx.Deadline(); ok {
		defer c.setControlDeadline(time.Time{})
		c.setControlDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { c.setControlDeadline(time.Unix(1, 0)) })
	defer stop()
	for rank, r := range c.remotes {
		if r == nil {
			continue
		}
		if err := r.control.sendWord(word); err != nil {
			return nil, c.silent(ctx, rank, err)
		}
	}
	words := make([][]byte, len(c.remotes))
	for rank, r := range c.remotes {
		if words[rank] = word; r == nil {
			continue
		}
		var err error
		if words[rank], err = r.control.receiveWord(); err != nil {
			return nil, c.silent(ctx, rank, err)
		}
	}
	return words, nil
}

// silent returns the error of a rank that does not exchange its word.
func (c *connector) silent(ctx context.Context, rank int, err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		<-ctx.Done() // the connection's deadline is that of ctx
	}
	reason := "it has not reported its UCX"
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE):
		reason = "it has ended"
	}
	return &MissingError{Rank: c.cfg.Rank, Size: c.cfg.Size, Missing: []int{rank}, Reasons: []string{reason}, Err: err}
}

func (c *connector) setControlDeadline(t time.Time) {
	for _, r := range c.remotes {
		if r != nil {
			r.control.SetDeadline(t)
		}
	}
}

// sendWord sends word as a record.
func (c *sealedConn) sendWord(word []byte) error {
	if len(word) > maxWord {
		return fmt.Errorf("a word may have at most %d bytes, got %d", maxWord, len(word))
	}
	buf := make([]byte, recordHead+len(word), recordHead+len(word)+recordTag)
	copy(buf[recordHead:], word)
	_, err := c.Write(c.keys.out.seal(buf, len(buf)))
	return err
}

// receiveWord waits for a record, and returns its content.
func (c *sealedConn) receiveWord() ([]byte, error) {
	var head [recordHead]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint16(head[:]))
	if size < recordTag || size > maxWord+recordTag {
		return nil, errForged
	}
	sealed := make([]byte, size)
	if _, err := io.ReadFull(c, sealed); err != nil {
		return nil, err
	}
	return c.keys.in.open(sealed)
}
