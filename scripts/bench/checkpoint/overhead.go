package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ddpbatch/internal/crc32c"
	"ddpbatch/scripts/bench/internal/paired"
	"ddpbatch/scripts/bench/internal/processes"

	"golang.org/x/sys/unix"
)

const (
	// chunkBytes is the number of bytes of a save that share one checksum.
	chunkBytes = 256 << 10
	// checksumPairs is the least number of pairs of writes: a few per cent must be visible beside the variation of the disk.
	checksumPairs = 31
)

// checksums measures the cost of checksums. The state is written and synced, with and without the checksum of each chunk just after the
// write that contains it, as a save without compression does.
func checksums(s *trainingState, below string, pairs int) paired.Experiment {
	what := fmt.Sprintf("write + fsync of %.0f MiB", float64(s.bytes())/(1<<20))
	return paired.Experiment{
		Name: "checksums", Times: pairs,
		Figures: []paired.Figure{
			{What: what + ": time", Unit: "ms"},
			{What: what + " with checksums: time", Unit: "ms"},
			{What: "time that checksums add", Goal: "< 5", Unit: "%"},
			{What: what + ": processor time", Unit: "ms"},
			{What: what + " with checksums: processor time", Unit: "ms"},
			{What: "processor time that checksums add", Unit: "%"},
		},
		Measure: func(_ context.Context, pair int) ([]float64, error) {
			bare, summed, err := bothWays(below, pair, func(with bool, dir string) error {
				_, err := writeState(s, filepath.Join(dir, "state"), with)
				return err
			})
			wall, cpu := added(bare.wall, summed.wall), added(bare.cpu, summed.cpu)
			return []float64{1000 * bare.wall, 1000 * summed.wall, wall, 1000 * bare.cpu, 1000 * summed.cpu, cpu}, err
		},
	}
}

// incompressible measures the cost of compression without a gain: incompressible bytes are saved with the default codec, and without one.
func incompressible(bytes int64, below string, pairs int) paired.Experiment {
	s := noise(bytes)
	return paired.Experiment{
		Name: "incompressible data", Times: pairs,
		Figures: []paired.Figure{
			{What: "incompressible: time that compression adds to a save", Goal: "<= 3", Unit: "%"},
			{What: "incompressible: processor time that it adds", Unit: "%"},
			{What: "incompressible: checkpoint larger than the state", Goal: "<= 0.1", Unit: "%"},
		},
		Measure: func(ctx context.Context, pair int) ([]float64, error) {
			var larger float64
			bare, coded, err := bothWays(below, pair, func(with bool, dir string) error {
				codec := "none"
				if with {
					codec = "auto"
				}
				info, err := save(ctx, s, dir, codec)
				if with {
					larger = added(float64(bytes), float64(info.Bytes))
				}
				return err
			})
			return []float64{added(bare.wall, coded.wall), added(bare.cpu, coded.cpu), larger}, err
		},
	}
}

// bothWays does some work without something and with it, each in a new directory. Each pair begins with the other way.
func bothWays(below string, pair int, work func(with bool, dir string) error) (without, with timing, err error) {
	for i := range 2 {
		err := inFolder(below, func(dir string) (err error) {
			if (pair+i)%2 == 1 {
				with, err = timed(func() error { return work(true, dir) })
			} else {
				without, err = timed(func() error { return work(false, dir) })
			}
			return err
		})
		if err != nil {
			return without, with, err
		}
	}
	return without, with, nil
}

// added returns by how many per cent second exceeds first.
func added(first, second float64) float64 { return 100 * (second/first - 1) }

// timing holds the seconds that some work took.
type timing struct{ cpu, wall float64 } // cpu: of all threads of this process, in user space and in the kernel; wall: of the clock

func timed(work func() error) (t timing, err error) {
	unix.Sync()
	before, err := processes.CPUTime(os.Getpid())
	if err != nil {
		return t, err
	}
	start := time.Now()
	if err := work(); err != nil {
		return t, err
	}
	t.wall = time.Since(start).Seconds()
	after, err := processes.CPUTime(os.Getpid())
	t.cpu = (after - before).Seconds()
	return t, err
}

// writeState writes the bytes and syncs them, and returns their checksum if that is requested.
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
				crc = crc32c.Combine(crc, crc32c.Checksum(chunk), int64(len(chunk))) // of all so far; a save keeps that of each chunk too
				part = part[len(chunk):]
			}
		}
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}
	return crc, f.Close()
}
