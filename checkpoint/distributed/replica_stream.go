package distributed

import (
	"context"
	"errors"
	"fmt"
	"io"

	"ddpbatch/internal/vfs"
)

// messageBytes is the longest message of a stream. Each of a rank's streams keeps one.
const messageBytes = 256 << 10

// What a message of a stream holds, by its first byte: bytes of the shard, then of its record, then one of the ends.
const (
	shardPart  byte = 's'
	recordPart byte = 'r'
	allSent    byte = 'e'
	givenUp    byte = 'x' // there is no shard, or it is not wanted any more
)

// outgoing is a stream to another rank.
type outgoing struct {
	peers Peers
	to    int
	buf   []byte
	lost  error // why nothing can be sent any more
}

// file sends a file's bytes, until stop says so. An error that is not lost, too, is the disk's.
func (o *outgoing) file(ctx context.Context, fsys vfs.FS, path string, kind byte, stop func() bool) error {
	f, err := fsys.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for at := int64(0); ; {
		if stop() {
			return errUnwanted
		}
		n, err := f.ReadAt(o.buf[1:], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			return nil
		}
		if err := o.send(ctx, kind, n); err != nil {
			return err
		}
		at += int64(n)
	}
}

var errUnwanted = errors.New("nobody wants it any more")

// send sends a message of n bytes, which are in buf already.
func (o *outgoing) send(ctx context.Context, kind byte, n int) error {
	o.buf[0] = kind
	o.lost = o.peers.Send(ctx, o.to, o.buf[:1+n])
	return o.lost
}

// incoming is a stream from another rank.
type incoming struct {
	peers Peers
	from  int
	buf   []byte
	kind  byte   // of the message that is not used up yet; 0: none
	bytes []byte // of it
	lost  error  // why nothing can be received any more
}

// next is the kind of the next message, which stays for copy. After an end it is that for ever.
func (in *incoming) next(ctx context.Context) (byte, error) {
	if in.kind != 0 || in.lost != nil {
		return in.kind, in.lost
	}
	n, err := in.peers.Recv(ctx, in.from, in.buf)
	if err == nil && n == 0 {
		err = fmt.Errorf("rank %d sent an empty message", in.from)
	}
	if err != nil {
		in.lost = err
		return 0, err
	}
	in.kind, in.bytes = in.buf[0], in.buf[1:n]
	return in.kind, nil
}

func (in *incoming) ended() bool { return in.kind == allSent || in.kind == givenUp }

// copy writes the bytes of one kind, up to the first message of the kind that follows. errUnwanted: what comes is not all of it, as the sender has
// given up, or stop says that nobody wants it.
func (in *incoming) copy(ctx context.Context, w io.Writer, kind, follows byte, stop func() bool) error {
	for {
		next, err := in.next(ctx)
		switch {
		case err != nil:
			return err
		case next != kind && next != follows || stop():
			return errUnwanted
		case next == follows:
			return nil
		}
		if _, err := w.Write(in.bytes); err != nil {
			return err
		}
		in.kind = 0
	}
}

// rest receives what nobody has looked at, and tells how the stream ends.
func (in *incoming) rest(ctx context.Context) (end byte, err error) {
	for {
		end, err = in.next(ctx)
		if err != nil || in.ended() {
			return end, err
		}
		in.kind = 0
	}
}
