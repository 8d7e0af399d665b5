package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ddpbatch/internal/crc32c"
	bench "ddpbatch/scripts/bench/internal/report"
	"ddpbatch/scripts/bench/internal/stats"
)

const (
	// chunkBytes is what a save takes one checksum of.
	chunkBytes = 256 << 10
	// checksumPairs is how often the state is written both ways, at least: a few per cent must show beside what a disk does by itself.
	checksumPairs = 31
)

// measureChecksums writes the state and syncs it, bare, and as a save without compression does: with the checksum of each chunk taken
// just after the write that it is in. In turn, so many pairs of them; what checksums add is compared pair by pair.
func measureChecksums(ctx context.Context, s *state, below string, pairs int, progress io.Writer) ([]bench.Figure, error) {
	fmt.Fprintf(progress, "checksums: %d pairs\n", pairs)
	var took [2]costs // without and with checksums
	for pair := range pairs {
		for i := range took {
			with := (pair + i) % 2 // every pair begins with the other one
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			err := inFolder(below, func(dir string) error {
				t := cpuTime(func() error {
					_, err := writeState(s, filepath.Join(dir, "state"), with == 1)
					return err
				})
				took[with].add(t)
				return t.err
			})
			if err != nil {
				return nil, err
			}
		}
	}
	bare, summed := took[0], took[1]
	what := fmt.Sprintf("write + fsync of %.0f MiB", float64(s.bytes())/(1<<20))
	return []bench.Figure{
		{What: what + ": time", Unit: "ms", Samples: bare.wall},
		{What: what + " with checksums: time", Unit: "ms", Samples: summed.wall},
		{What: "time that checksums add", Goal: "< 5", Unit: "%", Samples: added(bare.wall, summed.wall)},
		{What: what + ": processor time", Unit: "ms", Samples: bare.cpu},
		{What: what + " with checksums: processor time", Unit: "ms", Samples: summed.cpu},
		{What: "processor time that checksums add", Unit: "%", Samples: added(bare.cpu, summed.cpu)},
	}, nil
}

// costs are what launches took, in milliseconds.
type costs struct{ wall, cpu stats.Samples }

func (c *costs) add(t timing) {
	c.wall, c.cpu = append(c.wall, 1000*t.wall), append(c.cpu, 1000*t.cpu)
}

// added is by how many per cent the second of each pair is more than the first.
func added(first, second stats.Samples) (all stats.Samples) {
	for i := range first {
		all = append(all, 100*(second[i]/first[i]-1))
	}
	return all
}

// writeState writes the bytes and syncs them, and gives their checksum if that is asked for.
func writeState(s *state, path string, sum bool) (crc uint32, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for _, t := range s.tensors {
		for data := t.Data; len(data) > 0; {
			part := data[:min(block, len(data))]
			if _, err := f.Write(part); err != nil {
				return 0, err
			}
			data = data[len(part):]
			for sum && len(part) > 0 {
				chunk := part[:min(chunkBytes, len(part))]
				crc = crc32c.Combine(crc, crc32c.Checksum(chunk), int64(len(chunk))) // of all so far; a save keeps that of each chunk, too
				part = part[len(chunk):]
			}
		}
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	return crc, f.Close()
}
