package main

import (
	"fmt"
	"io"
	"runtime"

	"ddpbatch/internal/vfs"
	"ddpbatch/scripts/bench/internal/paired"
	"ddpbatch/scripts/bench/internal/report"
	"ddpbatch/scripts/bench/internal/stats"
)

// method is how all sides are timed.
const method = `
All sides have the same state: weights of N(0, 0.02) and Adam's two moments, float32, %d MiB. ddpbatch's figures are of whole checkpoints with
their manifest: durable after a save (every file and folder synced), every byte checked by a load. Loads are from the page cache. zstd
compresses from a file there. Sides are launched in turn, %d times; figures are medians, in MB/s of the state's bytes. "ratio" is that
of times, ours / theirs, launch by launch, its median, and the interval between order statistics that holds it with %s; "win": all of the
interval is below 1; "lose": all above. ZipNN's figures are of an earlier day; it is not run.`

// figuresMethod is how figures are measured, and which are not.
const figuresMethod = `
Checksums: the same bytes are written, 1 MiB at a time, and synced, bare and with the CRC32C of each 256 KiB just after the write, in turn; what
they add is compared pair by pair. "interval" is where the median of all launches lies with a chance of at least 95 %, or of what it says.
Processor time is that of all threads, in user space and in the kernel. Incompressible: random bits are saved with the codec "auto" and with
"none", in turn, pair by pair. Peak memory is what is resident at most while the work is done, less what was before, by the kernel's account; the
state itself is there before a save, which takes what its encoders need; an asynchronous one takes a copy of the state, too.

Not measured, as one machine with a local disk does not show it: a commit on NFS (goal: 1 s for 64 ranks), loads that become faster with more
readers, and from the signal to the commit in a job of many nodes (goal: a step and a save). What saves cost a whole run (goal: 3.5 %) the
trainer prints at its end.`

func newHeader(o options, dir, torch string) report.Header {
	text := figuresMethod
	if !o.figures {
		text = fmt.Sprintf(method, o.mib, o.Launches, report.Certainty(o.Launches)) + "\n" + text
	}
	h := report.NewHeader(text)
	versions := runtime.Version()
	if torch != "" {
		versions += "; " + torch
	}
	h.About = []string{versions + "; " + fileSystem(dir)}
	return h
}

// results holds everything that was measured.
type results struct {
	Header  report.Header      `json:"header"`
	Codecs  []codec            `json:"codecs"`
	Rows    []comparisonResult `json:"rows"`
	Figures []paired.Figure    `json:"figures"`
}

func (r *results) printCodecs(w io.Writer) {
	fmt.Fprintf(w, "\n### one thread, in memory\n\n")
	var cells [][]string
	for _, c := range r.Codecs {
		cells = append(cells, []string{c.Kind, c.Name, fmt.Sprintf("%.4f", float64(c.Ratio)), report.Significant(c.Encode.Median()),
			report.Significant(c.Decode.Median())})
	}
	report.Markdown(w, []string{"data", "codec", "stored / raw", "encode MB/s", "decode MB/s"}, cells)
}

func (r *comparisonResult) print(w io.Writer) {
	fmt.Fprintf(w, "\n### %s\n\n", r.What)
	var cells [][]string
	for _, c := range r.Sides {
		stored := "-"
		if c.Stored > 0 {
			stored = fmt.Sprintf("%.4f", float64(c.Stored)/float64(r.Bytes))
		}
		line := []string{c.Side, report.Significant(float64(r.Bytes) / 1e6 / c.Times.Median()), milliseconds(c.Times), stored}
		cells = append(cells, append(line, report.Compared(c.Row, r.Sides[0].Row)...))
	}
	report.Markdown(w, []string{"side", "MB/s", "ms", "stored / raw", "ratio", "interval", "verdict"}, cells)
}

func milliseconds(s stats.Samples) string { return report.Significant(1000 * s.Median()) }

// fileSystem names the file system of a directory.
func fileSystem(dir string) string {
	space, err := vfs.OS{}.Space(dir)
	if err != nil {
		return "file system unknown"
	}
	return space.Type
}
