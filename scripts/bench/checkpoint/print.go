package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"time"

	bench "ddpbatch/scripts/bench/internal/report"
	"ddpbatch/scripts/bench/internal/stats"
)

// method is how all sides are timed.
const method = `
All sides have the same state: weights of N(0, 0.02) and Adam's two moments, float32, %d MiB. ddpbatch's figures are of whole checkpoints with
their manifest: durable after a save (every file and folder synced), every byte checked by a load. Loads are from the page cache. zstd
compresses from a file there. Sides are launched in turn, %d times; figures are medians, in MB/s of the state's bytes. "ratio" is that
of times, ours / theirs, launch by launch, its median, and the interval between order statistics that holds it with %s; "win": all of the
interval is below 1; "lose": all above. ZipNN's figures are of an earlier day; it is not run.`

// header says what was compared, on what and how.
type header struct {
	Machine string `json:"machine"`
	Load    string `json:"load"`
	Time    string `json:"time"`
	Torch   string `json:"torch"`
	Folder  string `json:"folder"` // its file system
	Method  string `json:"method"`
}

func newHeader(o options, dir, torch string) header {
	return header{
		Machine: bench.Machine(), Load: bench.Load(), Time: time.Now().Format(time.RFC3339),
		Torch: torch, Folder: fileSystem(dir), Method: fmt.Sprintf(method[1:], o.mib, o.launches, bench.Certainty(o.launches)),
	}
}

// report is all that was measured.
type report struct {
	header header
	codecs []codec
	rows   []row
}

func (r *report) print(w io.Writer) {
	h := r.header
	fmt.Fprintf(w, "- %s, load %s, %s\n- %s; PyTorch %s; %s\n\n%s\n", h.Machine, h.Load, h.Time, runtime.Version(), h.Torch, h.Folder, h.Method)
	for _, row := range r.rows {
		row.print(w)
	}
	fmt.Fprintf(w, "\n### one thread, in memory\n\n")
	var cells [][]string
	for _, c := range r.codecs {
		cells = append(cells, []string{c.Kind, c.Name, fmt.Sprintf("%.4f", float64(c.Ratio)), bench.Significant(c.Encode.Median()), bench.Significant(c.Decode.Median())})
	}
	bench.Markdown(w, []string{"data", "codec", "stored / raw", "encode MB/s", "decode MB/s"}, cells)
}

func (r *row) print(w io.Writer) {
	fmt.Fprintf(w, "\n### %s\n\n", r.What)
	var cells [][]string
	for i, c := range r.Sides {
		stored := "-"
		if c.Stored > 0 {
			stored = fmt.Sprintf("%.4f", float64(c.Stored)/float64(r.Bytes))
		}
		line := []string{c.Name, bench.Significant(float64(r.Bytes) / 1e6 / c.Seconds.Median()), milliseconds(c.Seconds), stored, "", "", ""}
		if i > 0 {
			line[4], line[5], line[6] = bench.Ratio(c.Ratio), bench.Interval(c.Range, len(c.Seconds)), verdict(c.Range)
		}
		cells = append(cells, line)
	}
	bench.Markdown(w, []string{"side", "MB/s", "ms", "stored / raw", "ratio", "interval", "verdict"}, cells)
}

func milliseconds(s stats.Samples) string { return bench.Significant(1000 * s.Median()) }

func verdict(i stats.Interval) string {
	switch {
	case math.IsNaN(float64(i.Low)):
		return "-"
	case i.High < 1:
		return "win"
	case i.Low > 1:
		return "lose"
	}
	return "even"
}

func (r *report) writeJSON(path string) error {
	text, err := json.MarshalIndent(struct {
		Header header  `json:"header"`
		Codecs []codec `json:"codecs"`
		Rows   []row   `json:"rows"`
	}{r.header, r.codecs, r.rows}, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.WriteFile(filepath.Clean(path), append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write the samples: %w", err)
	}
	return nil
}
