package data

import (
	"context"
	"fmt"
	"os"
	"runtime"
)

const (
	textSymbols = 256 // bytes

	// maxContext bounds the bytes of a row. Attention's memory grows with its square.
	maxContext = 1 << 20
)

// text is windows of bytes. Row i is the context bytes from i x context on, and its labels are the bytes that follow
// each of them.
type text struct {
	bytes   []byte
	context int
	file    *mapping // that bytes lie in, if any
}

// OpenText opens a text to learn the next byte of: the file at path, or all files of the tree at path. Row i is the
// bytes [i x context, i x context + context) as symbols of 256, and its labels are the bytes one further on; what does not
// fill a row at the end is left out.
//
// A file is mapped. The files of a tree are put together, once a node where there is a cache: those of each folder sorted by
// name, folders among them, with a zero byte between two files, which is in no text. What begins with a dot is
// left out, and so is the cache's own folder. Links to files are followed, links to folders are not, and a link to
// nothing is an error: text would be missing.
func OpenText(ctx context.Context, cache *Cache, path string, context int) (Dataset, error) {
	if context < 1 || context > maxContext {
		return nil, fmt.Errorf("read text: a context of %d bytes, want 1 to %d", context, maxContext)
	}
	t, err := openBytes(ctx, cache, path)
	if err != nil {
		return nil, fmt.Errorf("read text: %w", err)
	}
	t.context = context
	if t.Len() < 1 {
		return nil, fmt.Errorf("read text: %s holds %d bytes, a row of context %d takes %d", path, len(t.bytes), context, context+1)
	}
	return t, nil
}

func openBytes(ctx context.Context, cache *Cache, path string) (*text, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return openTree(ctx, cache, path)
	}
	m, err := openMapping(path)
	if err != nil {
		return nil, err
	}
	return &text{bytes: m.bytes, file: m}, nil
}

func (t *text) Len() int { return (len(t.bytes) - 1) / t.context }

func (t *text) Spec() Spec {
	return Spec{Inputs: t.context, Classes: textSymbols, Labels: t.context, Symbols: textSymbols}
}

func (t *text) Read(i int, x, _ []float32, labels []int) {
	if i < 0 || i >= t.Len() {
		panic(badRow)
	}
	row := t.bytes[i*t.context:][:t.context+1]
	for j, b := range row[:t.context] {
		x[j] = float32(b)
	}
	for j, b := range row[1:] {
		labels[j] = int(b)
	}
	runtime.KeepAlive(t)
}

func (t *text) hash(h *stoppable, first, end int) {
	h.Write(t.bytes[first*t.context : end*t.context+1])
	runtime.KeepAlive(t)
}
