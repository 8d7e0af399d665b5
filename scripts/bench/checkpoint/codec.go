package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"ddpbatch/scripts/bench/internal/processes"
	"ddpbatch/scripts/bench/internal/stats"
)

// codec is what one thread does with one kind of data in memory.
type codec struct {
	Name   string        `json:"name"`
	Kind   string        `json:"kind"`
	Ratio  stats.Number  `json:"ratio"`  // stored / raw bytes
	Encode stats.Samples `json:"encode"` // MB/s of raw bytes
	Decode stats.Samples `json:"decode"`
}

// published is what ZipNN 0.5.3 (C, one thread) gave on the same kinds of data on a machine like this one; it is not run here.
var published = []codec{
	{Name: "ZipNN", Kind: "float32", Ratio: 0.8313, Encode: stats.Samples{395}, Decode: stats.Samples{1255}},
	{Name: "ZipNN", Kind: "bfloat16", Ratio: 0.6623, Encode: stats.Samples{375}, Decode: stats.Samples{905}},
}

// codecPackage is the codec's, in the root of the repository.
const codecPackage = "checkpoint/internal/chunk"

// measureCodecs runs the benchmarks of the chunks' codec, and zstd's own benchmark on the same kinds.
func measureCodecs(ctx context.Context, benchmarks, dir string, launches int) ([]codec, error) {
	cmd := exec.Command(benchmarks, "-test.run", "^$", "-test.bench", "^Benchmark(Encode|Decode)$", "-test.cpu", "1",
		"-test.count", strconv.Itoa(launches), "-test.benchtime", "200ms")
	cmd.Dir = filepath.FromSlash(codecPackage)
	said, _, err := processes.Run(ctx, cmd)
	if err != nil {
		return nil, fmt.Errorf("benchmarks of the codec: %w", err)
	}
	all, err := parseBenchmarks(said)
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

// upperHalves are the bfloat16 that float32 numbers become when they are cut off.
func upperHalves(single []byte) []byte {
	half := make([]byte, 0, len(single)/2)
	for i := 0; i < len(single); i += 4 {
		half = append(half, single[i+2:i+4]...)
	}
	return half
}

// benchmarkLine is a line such as "BenchmarkEncode/float32  \t 55 \t 4113461 ns/op\t1019.65 MB/s\t 0.8312 ratio".
var benchmarkLine = regexp.MustCompile(`^Benchmark(Encode|Decode)/(\S+)\s.*?([0-9.]+) MB/s(?:.*?([0-9.]+) ratio)?`)

func parseBenchmarks(text string) ([]codec, error) {
	var all []codec
	at := map[string]int{}
	for line := range strings.SplitSeq(text, "\n") {
		m := benchmarkLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		i, ok := at[m[2]]
		if !ok {
			i = len(all)
			at[m[2]] = i
			all = append(all, codec{Name: "ddpbatch", Kind: m[2]})
		}
		speed, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return nil, fmt.Errorf("benchmarks of the codec: %q: %w", line, err)
		}
		if m[1] == "Decode" {
			all[i].Decode = append(all[i].Decode, speed)
			continue
		}
		all[i].Encode = append(all[i].Encode, speed)
		ratio, err := strconv.ParseFloat(m[4], 64)
		if err != nil {
			return nil, fmt.Errorf("benchmarks of the codec: %q has no ratio", line)
		}
		all[i].Ratio = stats.Number(ratio)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("benchmarks of the codec: no figures in %q", text)
	}
	return all, nil
}

// zstdLine is the last line of zstd's benchmark: " 1#float32 : 16777216 -> 15553316 (x1.079), 420.1 MB/s, 1200.3 MB/s".
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
		return codec{}, fmt.Errorf("zstd's benchmark says %q, which is not understood", said)
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
