package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"ddpbatch/internal/crc32c"
	"ddpbatch/scripts/bench/internal/report"
	"ddpbatch/scripts/bench/internal/stats"

	"golang.org/x/sys/unix"
)

const (
	// chunkBytes is what a save takes one checksum of.
	chunkBytes = 256 << 10
	// checksumPairs is how often the state is written both ways, at least: a few per cent must show beside what a disk does by itself.
	checksumPairs = 31
)

// measureChecksums writes the state and syncs it, bare, and as a save without compression does: with the checksum of each chunk taken
// just after the write that it is in. In turn, so many pairs of them; what checksums add is compared pair by pair.
func measureChecksums(ctx context.Context, s *trainingState, below string, pairs int, progress io.Writer) ([]report.Figure, error) {
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
	return []report.Figure{
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
func writeState(s *trainingState, path string, sum bool) (crc uint32, err error) {
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

// measureIncompressible saves bytes that no codec makes smaller with the default codec and without one: in turn, so many pairs of them.
func measureIncompressible(ctx context.Context, bytes int64, below string, pairs int, progress io.Writer) ([]report.Figure, error) {
	fmt.Fprintf(progress, "incompressible data: %d pairs\n", pairs)
	s := noise(bytes)
	var took [2]costs // without a codec and with one
	var larger stats.Samples
	for pair := range pairs {
		var stored [2]int64
		for i := range took {
			with := (pair + i) % 2 // every pair begins with the other one
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			err := inFolder(below, func(dir string) error {
				t := cpuTime(func() error {
					info, err := save(ctx, s, dir, []string{"none", "auto"}[with])
					stored[with] = info.Bytes
					return err
				})
				took[with].add(t)
				return t.err
			})
			if err != nil {
				return nil, err
			}
		}
		larger = append(larger, 100*(float64(stored[1])/float64(bytes)-1))
	}
	return []report.Figure{
		{What: "incompressible: time that compression adds to a save", Goal: "<= 3", Unit: "%", Samples: added(took[0].wall, took[1].wall)},
		{What: "incompressible: processor time that it adds", Unit: "%", Samples: added(took[0].cpu, took[1].cpu)},
		{What: "incompressible: checkpoint larger than the state", Goal: "<= 0.1", Unit: "%", Samples: larger},
	}, nil
}

// timing is what some work took, in seconds.
type timing struct {
	cpu, wall float64 // of all threads of this process, in user space and in the kernel; of the clock
	err       error
}

func cpuTime(work func() error) (t timing) {
	var before, after unix.Rusage
	unix.Sync()
	if t.err = unix.Getrusage(unix.RUSAGE_SELF, &before); t.err != nil {
		return t
	}
	start := time.Now()
	err := work()
	t.wall = time.Since(start).Seconds()
	if t.err = unix.Getrusage(unix.RUSAGE_SELF, &after); t.err == nil {
		t.err = err
	}
	used := func(r unix.Rusage) float64 {
		return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
	}
	t.cpu = used(after) - used(before)
	return t
}
