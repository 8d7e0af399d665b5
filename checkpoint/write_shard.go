package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/checkpoint/internal/shard"
	"ddpbatch/internal/crc32c"
	"ddpbatch/internal/replace"
)

// Piece is a part of a tensor as one shard holds it: the bytes Data from byte Start of the
// tensor, which is a multiple of the element size. Data is only read, and only until WriteShard returns.
type Piece struct {
	Tensor, DType string
	Shape         []int // of the whole tensor
	Start         int64
	Data          []byte
	Base          []byte // the same bytes in the base of a delta; nil: store the piece whole

	// From, unless nil, holds the first Length bytes in place of Data, so that they need not be in
	// memory. It is read by several goroutines, each byte once.
	From   io.ReaderAt
	Length int64 // of From
}

// ShardInfo is what a writer reports to rank 0 about its durable shard, as JSON.
type ShardInfo struct {
	File string `json:"file"`
	Size int64  `json:"size"`
	Raw  int64  `json:"raw"` // bytes of the pieces
	CRC  uint32 `json:"crc32c"`
	// Delta says that pieces had a Base, so that the shard may need it to be read.
	Delta bool `json:"delta,omitempty"`
	// Seconds, one after the other: waiting for the encoders; in write(2); in fsync, close,
	// rename and the folder's fsync. Encoding continues while another chunk is written.
	Encode float64 `json:"encode_s"`
	Write  float64 `json:"write_s"`
	Sync   float64 `json:"sync_s"`
}

// WriteShard writes shard i of n with these pieces in this order. It encodes with
// Options.Workers goroutines. The shard is durable when the error is nil. Each shard of a draft is
// written once.
func (dr *Draft) WriteShard(ctx context.Context, i, n int, pieces []Piece) (info ShardInfo, err error) {
	defer explain(&err, "write shard %d of %d", i, n)
	if i < 0 || i >= n || n > manifest.MaxShards {
		return ShardInfo{}, errors.New("the number of the shard, or the count of shards, is out of range")
	}
	sources, raw, err := sourcesOf(pieces)
	if err != nil {
		return ShardInfo{}, err
	}
	name := dr.tag.ShardName(i, n)
	if err := dr.begin(name); err != nil {
		return ShardInfo{}, err
	}
	d := dr.d
	size := int64(0) // unknown
	if d.codec == chunk.None {
		size = shard.RawSize(sources)
	}
	header := shard.Header{Version: shard.Version, Step: dr.step, Shard: i, Shards: n}
	var sum shard.Sum
	begin := d.now()
	file, err := dr.putShard(ctx, name, size, func(w io.Writer) (err error) {
		sum, err = shard.Write(ctx, w, header, sources, shard.WriteOptions{Codec: d.codec, Workers: d.workers})
		return err
	})
	if err != nil {
		return ShardInfo{}, err
	}
	dr.finish(name)
	encode := d.now().Sub(begin) - file.writeTime - file.syncTime
	return ShardInfo{
		File: name, Size: sum.Size, Raw: raw, CRC: sum.CRC, Delta: slices.ContainsFunc(pieces, func(p Piece) bool { return p.Base != nil }),
		Encode: encode.Seconds(), Write: file.writeTime.Seconds(), Sync: file.syncTime.Seconds(),
	}, nil
}

// EncodeShard writes the bytes of shard i of n to w, as WriteShard would write them, so that CopyShard can later put them into a
// draft. Of the ShardInfo, only Size, Raw and CRC are set.
func (d *Dir) EncodeShard(ctx context.Context, w io.Writer, step int64, i, n int, pieces []Piece) (ShardInfo, error) {
	if i < 0 || i >= n || n > manifest.MaxShards || step < 0 || step > maxStep {
		return ShardInfo{}, fmt.Errorf("encode shard %d of %d of step %d: a number is out of range", i, n, step)
	}
	sources, raw, err := sourcesOf(pieces)
	if err != nil {
		return ShardInfo{}, err
	}
	header := shard.Header{Version: shard.Version, Step: step, Shard: i, Shards: n}
	sum, err := shard.Write(ctx, w, header, sources, shard.WriteOptions{Codec: d.codec, Workers: d.workers})
	if err != nil {
		return ShardInfo{}, fmt.Errorf("encode shard %d of %d of step %d: %w", i, n, step, err)
	}
	return ShardInfo{Size: sum.Size, Raw: raw, CRC: sum.CRC}, nil
}

// copyBytes is how much is read and written at a time.
const copyBytes = 1 << 20

// CopyShard puts a shard that was written elsewhere into the draft. It checks what it reads against the
// size and checksum of info, and returns info with the new file name. The shard is durable when
// the error is nil.
func (dr *Draft) CopyShard(ctx context.Context, i, n int, from io.ReaderAt, info ShardInfo) (_ ShardInfo, err error) {
	defer explain(&err, "copy shard %d of %d of step %d to %s", i, n, dr.step, dr.path())
	if i < 0 || i >= n || n > manifest.MaxShards {
		return ShardInfo{}, errors.New("the number of the shard, or the count of shards, is out of range")
	}
	name := dr.tag.ShardName(i, n)
	if err := dr.begin(name); err != nil {
		return ShardInfo{}, err
	}
	file, err := dr.putShard(ctx, name, info.Size, func(w io.Writer) error { return copyAll(ctx, w, from, info) })
	if err != nil {
		return ShardInfo{}, err
	}
	dr.finish(name)
	info.File, info.Write, info.Sync = name, file.writeTime.Seconds(), file.syncTime.Seconds()
	return info, nil
}

func copyAll(ctx context.Context, w io.Writer, from io.ReaderAt, info ShardInfo) error {
	buf, crc := make([]byte, min(copyBytes, max(info.Size, 0))), uint32(0)
	for at := int64(0); at < info.Size; at += int64(len(buf)) {
		if err := ctx.Err(); err != nil {
			return err
		}
		buf = buf[:min(int64(len(buf)), info.Size-at)]
		if n, err := from.ReadAt(buf, at); n < len(buf) {
			return fmt.Errorf("read %d bytes at %d of the shard: %w", len(buf), at, err)
		}
		crc = crc32c.Update(crc, buf)
		if _, err := w.Write(buf); err != nil {
			return err
		}
	}
	if crc != info.CRC {
		return fmt.Errorf("the shard's checksum is %08x, not %08x as when it was written", crc, info.CRC)
	}
	return nil
}

// begin records a file, so that Abort removes it.
func (dr *Draft) begin(name string) error {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	if dr.finalized {
		return errors.New("the draft has been committed or aborted already")
	}
	dr.shards = append(dr.shards, name)
	return nil
}

// putShard writes the file of a shard, which has size bytes if that is not 0.
func (dr *Draft) putShard(ctx context.Context, name string, size int64, fill func(io.Writer) error) (*durable, error) {
	o := replace.Options{Temp: name + manifest.TmpSuffix, Size: size, New: true, BeforeRename: ctx.Err}
	return dr.d.writeFile(ctx, filepath.Join(dr.path(), name), !dr.owner, o, fill)
}

// finish records that a file is durable. From then on the files of a joined draft are rank 0's to remove: it knows of them, or will
// soon, and may commit them.
func (dr *Draft) finish(name string) {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	if !dr.owner {
		dr.shards = slices.DeleteFunc(dr.shards, func(other string) bool { return other == name })
	}
}

// sourcesOf checks pieces, and returns the sum of their lengths.
func sourcesOf(pieces []Piece) (sources []shard.Source, raw int64, err error) {
	sources = make([]shard.Source, len(pieces))
	for i, p := range pieces {
		layout, err := p.layout()
		if err != nil {
			return nil, 0, fmt.Errorf("piece of tensor %q: %w", p.Tensor, err)
		}
		n := p.length()
		if raw += n; raw > manifest.MaxRawBytes {
			return nil, 0, fmt.Errorf("the pieces have more than %d bytes together", int64(manifest.MaxRawBytes))
		}
		sources[i] = shard.Source{Piece: shard.Piece{Name: p.Tensor, Layout: layout, Length: n}, Data: p.Data, From: p.From, Base: p.Base}
	}
	return sources, raw, nil
}

// length returns how many bytes a piece has.
func (p *Piece) length() int64 {
	if p.From != nil {
		return p.Length
	}
	return int64(len(p.Data))
}

// layout checks a piece against its tensor, and returns the tensor's layout.
func (p *Piece) layout() (chunk.Layout, error) {
	size, err := manifest.ByteSize(p.DType, p.Shape)
	if err != nil {
		return chunk.Layout{}, err
	}
	elem, _ := manifest.ElemSize(p.DType)
	n := p.length()
	switch {
	case p.From != nil && (p.Data != nil || n < 0):
		return chunk.Layout{}, fmt.Errorf("it has %d bytes in Data and %d in From: set one of them", len(p.Data), n)
	case n == 0:
		return chunk.Layout{}, errors.New("it has no bytes")
	case p.Start < 0 || p.Start > size-n:
		return chunk.Layout{}, fmt.Errorf("bytes %d to %d are not within the tensor's %d", p.Start, p.Start+n, size)
	case p.Start%int64(elem) != 0 || n%int64(elem) != 0:
		return chunk.Layout{}, fmt.Errorf("%d bytes from byte %d are not whole elements of %d bytes", n, p.Start, elem)
	case p.Base != nil && int64(len(p.Base)) != n:
		return chunk.Layout{}, fmt.Errorf("it has %d bytes, but its base has %d", n, len(p.Base))
	}
	return layoutOf(p.DType), nil
}

// layoutOf returns the layout of a known dtype.
func layoutOf(dtype string) chunk.Layout {
	l, _ := manifest.Layout(dtype)
	return l
}
