package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"ddpbatch/scripts/bench/internal/gobench"
	"ddpbatch/scripts/bench/internal/stats"
)

// codec holds the results of one thread with one kind of data in memory.
type codec struct {
	Name   string        `json:"name"`
	Kind   string        `json:"kind"`
	Ratio  stats.Number  `json:"ratio"`  // stored / raw bytes
	Encode stats.Samples `json:"encode"` // MB/s of raw bytes
	Decode stats.Samples `json:"decode"`
}

// published are the results of ZipNN 0.5.3 (C, one thread) for the same kinds of data on a similar machine. ZipNN is not run here.
var published = []codec{
	{Name: "ZipNN", Kind: "float32", Ratio: 0.8313, Encode: stats.Samples{395}, Decode: stats.Samples{1255}},
	{Name: "ZipNN", Kind: "bfloat16", Ratio: 0.6623, Encode: stats.Samples{375}, Decode: stats.Samples{905}},
}

// codecPackage is the package of the codec, relative to the root of the repository.
const codecPackage = "checkpoint/internal/chunk"

// measureCodecs runs the benchmarks of the chunks' codec, and zstd's own benchmark for the same kinds of data.
func measureCodecs(ctx context.Context, benchmarks gobench.Program, dir string, launches int) ([]codec, error) {
	count := "-test.count=" + strconv.Itoa(launches)
	results, _, err := benchmarks.Run(ctx, nil, "^Benchmark(Encode|Decode)$", count, "-test.benchtime=200ms")
	if err != nil {
		return nil, err
	}
	all, err := ourCodecs(results)
	if err != nil {
		return nil, err
	}
	all = append(all, published...)
	s := newTrainingState(48 << 20)
	single := s.tensors[0].Data
	for _, of := range []struct {
		kind string
		data []byte
	}{{"float32", single}, {"bfloat16", upperHalves(single)}} {
		c, err := zstdBenchmark(ctx, filepath.Join(dir, of.kind), of.data)
		if err != nil {
			return nil, err
		}
		c.Kind = of.kind
		all = append(all, c)
	}
	return all, nil
}

// upperHalves returns the bfloat16 numbers that result from truncating float32 numbers.
func upperHalves(single []byte) []byte {
	half := make([]byte, 0, len(single)/2)
	for i := 0; i < len(single); i += 4 {
		half = append(half, single[i+2:i+4]...)
	}
	return half
}

// ourCodecs returns the results in the order in which the benchmarks run.
func ourCodecs(results []gobench.Result) (all []codec, err error) {
	for _, r := range results {
		what, kind, _ := strings.Cut(r.Name, "/")
		speed, hasSpeed := r.Metrics["MB/s"]
		ratio, hasRatio := r.Metrics["ratio"]
		if !hasSpeed || !hasRatio && what == "Encode" {
			return nil, fmt.Errorf("benchmark %s gives %v, want MB/s, and of Encode the ratio", r.Name, r.Metrics)
		}
		i := slices.IndexFunc(all, func(c codec) bool { return c.Kind == kind })
		if i < 0 {
			i = len(all)
			all = append(all, codec{Name: "ddpbatch", Kind: kind})
		}
		c := &all[i]
		if what == "Decode" {
			c.Decode = append(c.Decode, speed)
			continue
		}
		c.Encode = append(c.Encode, speed)
		c.Ratio = stats.Number(ratio)
	}
	return all, nil
}

// zstdLine matches the last line of zstd's benchmark: " 1#float32 : 16777216 -> 15553316 (x1.079), 420.1 MB/s, 1200.3 MB/s".
var zstdLine = regexp.MustCompile(`([0-9]+) *-> *([0-9]+) *\([^)]*\), *([0-9.]+) MB/s,? *([0-9.]+) ?MB/s`)

func zstdBenchmark(ctx context.Context, file string, data []byte) (codec, error) {
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return codec{}, err
	}
	defer os.Remove(file)
	said, _, err := zstd(ctx, "-b1", "-i1", "--single-thread", file)
	if err != nil {
		return codec{}, err
	}
	found := zstdLine.FindAllStringSubmatch(strings.ReplaceAll(said, "\r", "\n"), -1)
	if found == nil {
		return codec{}, fmt.Errorf("unexpected output of zstd's benchmark: %q", said)
	}
	last := found[len(found)-1]
	var n [4]float64
	for i := range n {
		if n[i], err = strconv.ParseFloat(last[i+1], 64); err != nil {
			return codec{}, fmt.Errorf("zstd's benchmark: %w", err)
		}
	}
	return codec{Name: "zstd -1", Ratio: stats.Number(n[1] / n[0]), Encode: stats.Samples{n[2]}, Decode: stats.Samples{n[3]}}, nil
}
