package output

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"testing"
)

// BenchmarkStreams is eight workers that write lines of 80 bytes as fast as they can; B/s of all together.
func BenchmarkStreams(b *testing.B) {
	const workers, perWorker = 8, 1 << 20
	chunk := bytes.Repeat(append(bytes.Repeat([]byte("x"), 79), '\n'), 100)
	for _, prefix := range []string{"", DefaultPrefix} {
		b.Run(fmt.Sprintf("prefix=%t", prefix != ""), func(b *testing.B) {
			dir := b.TempDir()
			b.SetBytes(workers * (perWorker / int64(len(chunk)) * int64(len(chunk))))
			b.ReportAllocs()
			for b.Loop() {
				mux, err := NewMux(Config{Prefix: prefix}, To{Stdout: io.Discard, Stderr: io.Discard}, nil)
				must(b, err)
				var wg sync.WaitGroup
				for rank := range workers {
					out, errs, err := mux.Worker(Worker{Host: "n1", Rank: rank}, Paths{Out: fmt.Sprintf("%s/%d", dir, rank)})
					must(b, err)
					errs.Drop()
					wg.Go(func() {
						writeTo(b, out, func(w io.Writer) {
							for range perWorker / len(chunk) {
								_, err := w.Write(chunk)
								must(b, err)
							}
						})
					})
				}
				wg.Wait()
				mux.Close()
			}
		})
	}
}

// BenchmarkStart is what the streams of four workers cost at a run's start and end.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	b.ReportAllocs()
	for b.Loop() {
		mux, err := NewMux(Config{Prefix: DefaultPrefix}, To{Stdout: io.Discard, Stderr: io.Discard}, nil)
		must(b, err)
		var streams []*Stream
		for rank := range 4 {
			out, errs, err := mux.Worker(Worker{Host: "n1", Rank: rank}, Paths{Out: fmt.Sprintf("%s/%d.out", dir, rank), Err: fmt.Sprintf("%s/%d.err", dir, rank)})
			must(b, err)
			out.Begin()
			errs.Begin()
			streams = append(streams, out, errs)
		}
		for _, s := range streams {
			wait(b, s)
		}
		mux.Close()
	}
}
