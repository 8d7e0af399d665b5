package shard

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"ddpbatch/checkpoint/internal/chunk"
)

// faulty is a file whose reads fail after the first at reads, or return few bytes at a time.
type faulty struct {
	io.ReaderAt
	at    int64
	err   error
	most  int // bytes per read; 0 means all
	reads atomic.Int64
}

func (f *faulty) ReadAt(p []byte, offset int64) (int, error) {
	if f.reads.Add(1) > f.at && f.err != nil {
		return 0, f.err
	}
	if f.most > 0 && len(p) > f.most {
		return f.ReaderAt.ReadAt(p[:f.most], offset)
	}
	return f.ReaderAt.ReadAt(p, offset)
}

// readAll opens, verifies and reads a shard.
func readAll(f io.ReaderAt, sum Sum, sources []Source, workers int) error {
	r, err := Open(f, sum.Size, testHeader, piecesOf(sources), sum.CRC)
	if err != nil {
		return err
	}
	defer r.Close()
	if err := r.Verify(context.Background(), workers); err != nil {
		return err
	}
	return r.Read(context.Background(), 0, 3, make([]byte, sources[0].Length-3), workers)
}

// TestFailedReadIsTheFilesError makes each read fail in turn. The error must be the file's, and must not report damage.
func TestFailedReadIsTheFilesError(t *testing.T) {
	t.Parallel()
	sources := mixture()
	for _, codec := range []chunk.Codec{chunk.Auto, chunk.None} {
		file, sum := write(t, sources, WriteOptions{Codec: codec})
		for at := int64(0); ; at++ {
			f := &faulty{ReaderAt: bytes.NewReader(file), at: at, err: syscall.EIO}
			err := readAll(f, sum, sources, 1+int(at%3))
			if f.reads.Load() <= at {
				must(t, err)
				if at < 10 {
					t.Errorf("only %d reads", at)
				}
				break
			}
			if _, damage := errors.AsType[*Damage](err); damage || !errors.Is(err, syscall.EIO) {
				t.Fatalf("read %d fails: error %v, want EIO", at, err)
			}
		}
	}
}

func TestShortReadsAreContinued(t *testing.T) {
	t.Parallel()
	sources := mixture()
	file, sum := write(t, sources, WriteOptions{})
	must(t, readAll(&faulty{ReaderAt: bytes.NewReader(file), most: 5000}, sum, sources, 2))
	stuck := &faulty{ReaderAt: readNothing{}}
	if err := readAll(stuck, sum, sources, 1); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that gives nothing: error %v", err)
	}
}

type readNothing struct{}

func (readNothing) ReadAt([]byte, int64) (int, error) { return 0, nil }

// observed is a file that calls onRead before each read.
type observed struct {
	io.ReaderAt
	onRead func(p []byte, offset int64)
}

func (o observed) ReadAt(p []byte, offset int64) (int, error) {
	o.onRead(p, offset)
	return o.ReaderAt.ReadAt(p, offset)
}

// Read reads raw chunks that are wanted in full directly into the destination. Of the rest it reads only the chunks that overlap the range.
func TestReadTouchesOnlyItsChunks(t *testing.T) {
	t.Parallel()
	sources := []Source{source("w", bytesLayout, noise(1, 9*chunkBytes))}
	file, _ := write(t, sources, WriteOptions{})
	whole := open(t, file, sources)
	dst := make([]byte, 7*chunkBytes)
	var offsets []int64
	beside := 0
	f := observed{bytes.NewReader(file), func(p []byte, offset int64) {
		offsets = append(offsets, offset-headerBytes)
		if from := offset - headerBytes - 10; from < 0 || from >= int64(len(dst)) || &p[0] != &dst[from] {
			beside += len(p)
		}
	}}
	r := &Reader{file: f, chunking: whole.chunking, chunks: whole.chunks}
	must(t, r.Read(t.Context(), 0, 10, dst, 1))
	if want := []int64{0, chunkBytes, 5 * chunkBytes, 7 * chunkBytes}; !slices.Equal(offsets, want) || beside != 2*chunkBytes {
		t.Errorf("read at %d, %d bytes not straight; want %d and the chunks at both ends", offsets, beside, want)
	}
}

// cancelling is a file that cancels a context at its second read.
type cancelling struct {
	io.ReaderAt
	cancel context.CancelFunc
	reads  atomic.Int64
}

func (c *cancelling) ReadAt(p []byte, offset int64) (int, error) {
	if c.reads.Add(1) == 2 {
		c.cancel()
	}
	return c.ReaderAt.ReadAt(p, offset)
}

func TestReadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	sources := []Source{source("w", bytesLayout, noise(1, 32*chunkBytes))}
	file, _ := write(t, sources, WriteOptions{})
	whole := open(t, file, sources)
	for _, workers := range []int{1, 3} {
		for name, read := range map[string]func(context.Context, *Reader) error{
			"Verify": func(ctx context.Context, r *Reader) error { return r.Verify(ctx, workers) },
			"Read": func(ctx context.Context, r *Reader) error {
				return r.Read(ctx, 0, 0, make([]byte, 32*chunkBytes), workers)
			},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			f := &cancelling{ReaderAt: bytes.NewReader(file), cancel: cancel}
			r := &Reader{file: f, chunking: whole.chunking, chunks: whole.chunks}
			if err := read(ctx, r); !errors.Is(err, context.Canceled) {
				t.Errorf("%s with %d workers: error %v", name, workers, err)
			}
			if n := f.reads.Load(); n > 2+int64(workers) {
				t.Errorf("%s with %d workers: %d reads", name, workers, n)
			}
			r.Close()
		}
	}
}
