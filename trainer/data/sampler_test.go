package data

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The expected indices come from PyTorch, through testdata/distributed_sampler.py.
func TestSamplerEqualsPyTorch(t *testing.T) { // without the race detector
	text, err := os.ReadFile(filepath.Join("testdata", "distributed_sampler.json"))
	if err != nil {
		t.Fatal(err)
	}
	var golden struct {
		Cases []struct {
			N          int     `json:"n"`
			Replicas   int     `json:"replicas"`
			Seed       uint64  `json:"seed"`
			Epoch      int     `json:"epoch"`
			DropLast   bool    `json:"drop_last"`
			Shuffle    bool    `json:"shuffle"`
			NumSamples int     `json:"num_samples"`
			Indices    [][]int `json:"indices"`
		} `json:"cases"`
	}
	if err := json.Unmarshal(text, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Cases) == 0 {
		t.Fatal("the file holds no cases")
	}
	for _, c := range golden.Cases {
		t.Run(fmt.Sprintf("n=%d world=%d seed=%d epoch=%d", c.N, c.Replicas, c.Seed, c.Epoch), func(t *testing.T) {
			for rank, want := range c.Indices {
				remainder := Pad
				if c.DropLast {
					remainder = Drop
				}
				s, err := NewDistributedSampler(SamplerConfig{
					Rows: c.N, World: c.Replicas, Rank: rank, Seed: c.Seed, Shuffle: c.Shuffle, Remainder: remainder,
				})
				if err != nil {
					t.Fatal(err)
				}
				// An earlier epoch must not affect this one.
				s.SetEpoch(c.Epoch+3, 2)
				s.SetEpoch(c.Epoch, 0)
				if s.Len() != c.NumSamples || !slices.Equal(s.Indices(), want) {
					t.Errorf("rank %d has %d rows %v, PyTorch %d %v", rank, s.Len(), s.Indices(), c.NumSamples, want)
				}
			}
		})
	}
}

// deal has all ranks of a world take batches of an epoch's rows, after the first rows, which are already taken. They take the given
// number of steps, or fewer if the rows end before. It returns the rows that they took, and how many all ranks had to take.
func deal(t *rapid.T, cfg SamplerConfig, epoch, first, batch, steps int) (rows []int, total int) {
	for cfg.Rank = range cfg.World {
		s, err := NewDistributedSampler(cfg)
		if err != nil {
			t.Fatal(err)
		}
		s.SetEpoch(epoch, first)
		if cfg.Rank > 0 && s.Total() != total {
			t.Fatalf("rank %d says that all have %d rows, another %d", cfg.Rank, s.Total(), total)
		}
		total = s.Total()
		least, most := total/cfg.World, (total+cfg.World-1)/cfg.World
		if s.Len() != len(s.Indices()) || s.Len() < least || s.Len() > most {
			t.Fatalf("rank %d has %d of %d rows in a world of %d", cfg.Rank, s.Len(), total, cfg.World)
		}
		rows = append(rows, s.Indices()[:min(s.Len(), batch*steps)]...)
	}
	return rows, total
}

// If an epoch is stopped any number of times and resumed by worlds of other sizes, each row is still trained on as often as Remainder
// says: once for Uneven, at most once for Drop, and once plus the padding for Pad.
func TestSamplerResumesWithAnotherWorld(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := SamplerConfig{
			Rows:      rapid.IntRange(1, 200).Draw(t, "rows"),
			Seed:      rapid.Uint64().Draw(t, "seed"),
			Shuffle:   rapid.Bool().Draw(t, "shuffle"),
			Remainder: rapid.SampledFrom([]Remainder{Pad, Drop, Uneven}).Draw(t, "remainder"),
		}
		epoch := rapid.IntRange(0, 1000).Draw(t, "epoch")
		times := make([]int, cfg.Rows)
		first, dealt, left := 0, 0, 1
		for stops := rapid.IntRange(0, 5).Draw(t, "stops"); left > 0; stops-- {
			cfg.World = rapid.IntRange(1, 20).Draw(t, "world")
			batch, steps := rapid.IntRange(1, 10).Draw(t, "batch"), cfg.Rows
			if stops > 0 {
				steps = rapid.IntRange(0, 5).Draw(t, "steps")
			}
			rows, total := deal(t, cfg, epoch, first, batch, steps)
			for _, row := range rows {
				times[row]++
			}
			first += len(rows)
			dealt += len(rows)
			left = total - len(rows)
		}
		least, most := slices.Min(times), slices.Max(times)
		switch cfg.Remainder {
		case Uneven:
			if least != 1 || most != 1 {
				t.Fatalf("rows appear from %d to %d times, want once", least, most)
			}
		case Drop:
			if most > 1 || cfg.Rows-dealt >= cfg.World {
				t.Fatalf("rows appear up to %d times, and %d are left out by a last world of %d", most, cfg.Rows-dealt, cfg.World)
			}
		case Pad:
			checkPadding(t, cfg, epoch, times, dealt-cfg.Rows)
		}
	})
}

// checkPadding checks that every row was dealt once, and that the padding repeated the first rows of the order.
func checkPadding(t *rapid.T, cfg SamplerConfig, epoch int, times []int, padding int) {
	if padding < 0 || padding >= cfg.World {
		t.Fatalf("a padding of %d rows by a last world of %d", padding, cfg.World)
	}
	cfg.World, cfg.Rank = 1, 0
	s, err := NewDistributedSampler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.SetEpoch(epoch, 0)
	for place, row := range s.Indices() {
		want := 1 + padding/cfg.Rows
		if place < padding%cfg.Rows {
			want++
		}
		if times[row] != want {
			t.Fatalf("row %d, at place %d of the order, appears %d times, want %d with a padding of %d", row, place,
				times[row], want, padding)
		}
	}
}

// An epoch that is stopped and resumed in a world of the same size has the rows of an epoch that never stopped.
func TestSamplerResumesWhereItWas(t *testing.T) {
	for _, remainder := range []Remainder{Pad, Drop, Uneven} {
		for rank := range 3 {
			s, err := NewDistributedSampler(SamplerConfig{Rows: 20, World: 3, Rank: rank, Shuffle: true, Remainder: remainder})
			if err != nil {
				t.Fatal(err)
			}
			s.SetEpoch(4, 0)
			whole := slices.Clone(s.Indices())
			for taken := range whole {
				if s.SetEpoch(4, 3*taken); !slices.Equal(s.Indices(), whole[taken:]) {
					t.Errorf("%s: rank %d after %d rows goes on with %v, want %v", remainder, rank, taken, s.Indices(), whole[taken:])
				}
			}
		}
	}
}

func TestSamplerRefusesBadConfigs(t *testing.T) {
	for _, cfg := range []SamplerConfig{
		{Rows: 0, World: 1},
		{Rows: 1 << 32, World: 1},
		{Rows: 1, World: 0},
		{Rows: 1, World: 2, Rank: 2},
		{Rows: 1, World: 2, Rank: -1},
		{Rows: 1, World: 1, Remainder: "half"},
	} {
		if s, err := NewDistributedSampler(cfg); err == nil {
			t.Errorf("%+v gives %v, want an error", cfg, s.Indices())
		}
	}
}

func TestSetEpochAllocatesNothing(t *testing.T) { // without the race detector
	s, err := NewDistributedSampler(SamplerConfig{Rows: 1000, World: 3, Shuffle: true})
	if err != nil {
		t.Fatal(err)
	}
	epoch := 0
	if n := testing.AllocsPerRun(100, func() { epoch++; s.SetEpoch(epoch, epoch) }); n != 0 {
		t.Errorf("an epoch allocates %v times", n)
	}
}

func BenchmarkSetEpoch(b *testing.B) {
	s, err := NewDistributedSampler(SamplerConfig{Rows: 60000, World: 4, Shuffle: true})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	epoch := 0
	for b.Loop() {
		s.SetEpoch(epoch, 0)
		epoch++
	}
}
