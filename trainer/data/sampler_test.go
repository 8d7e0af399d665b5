package data

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"ddpbatch/internal/testenv"
)

func TestSamplerEqualsPyTorch(t *testing.T) {
	text, err := os.ReadFile(testenv.Shared(t, "golden", "distributed_sampler.json"))
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
				s, err := NewDistributedSampler(SamplerConfig{
					Rows: c.N, World: c.Replicas, Rank: rank, Seed: c.Seed, Shuffle: c.Shuffle, DropLast: c.DropLast,
				})
				if err != nil {
					t.Fatal(err)
				}
				// Any epoch before must leave no trace.
				s.SetEpoch(c.Epoch + 3)
				s.SetEpoch(c.Epoch)
				if s.Len() != c.NumSamples || !slices.Equal(s.Indices(), want) {
					t.Errorf("rank %d has %d rows %v, PyTorch %d %v", rank, s.Len(), s.Indices(), c.NumSamples, want)
				}
			}
		})
	}
}

// What must hold of any settings: ranks together hold every row equally often up to one, and
// with DropLast no row twice.
func TestSamplerSplitsEvenly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := SamplerConfig{
			Rows:     rapid.IntRange(1, 200).Draw(t, "rows"),
			World:    rapid.IntRange(1, 20).Draw(t, "world"),
			Seed:     rapid.Uint64().Draw(t, "seed"),
			Shuffle:  rapid.Bool().Draw(t, "shuffle"),
			DropLast: rapid.Bool().Draw(t, "drop last"),
		}
		epoch := rapid.IntRange(0, 1000).Draw(t, "epoch")
		times := make([]int, cfg.Rows)
		for cfg.Rank = range cfg.World {
			s, err := NewDistributedSampler(cfg)
			if err != nil {
				t.Fatal(err)
			}
			s.SetEpoch(epoch)
			if want := cfg.Rows / cfg.World; cfg.DropLast && s.Len() != want {
				t.Fatalf("rank %d has %d rows, want %d", cfg.Rank, s.Len(), want)
			}
			for _, row := range s.Indices() {
				times[row]++
			}
		}
		least, most := slices.Min(times), slices.Max(times)
		if most-least > 1 || cfg.DropLast && most > 1 || !cfg.DropLast && least < 1 {
			t.Fatalf("rows appear from %d to %d times", least, most)
		}
	})
}

func TestSamplerRefuses(t *testing.T) {
	for _, cfg := range []SamplerConfig{
		{Rows: 0, World: 1},
		{Rows: 1 << 32, World: 1},
		{Rows: 1, World: 0},
		{Rows: 1, World: 2, Rank: 2},
		{Rows: 1, World: 2, Rank: -1},
	} {
		if s, err := NewDistributedSampler(cfg); err == nil {
			t.Errorf("%+v gives %v, want an error", cfg, s.Indices())
		}
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
		s.SetEpoch(epoch)
		epoch++
	}
}
