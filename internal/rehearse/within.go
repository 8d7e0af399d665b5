package rehearse

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"

	"ddpbatch/checkpoint/inspect"
	"ddpbatch/internal/text"
)

// readFiles collects the results for files whose bytes differ. If such a file can be read, as those of PyTorch and safetensors can, its
// tensors and values are compared.
type readFiles struct {
	alike, apart, others int                 // equal except for their bytes; different; not readable
	farthest             *inspect.Difference // of all files together; nil if none could be read
}

// compare compares two files and returns their differences, one line each; no lines mean that their contents are the same.
func (all *readFiles) compare(ctx context.Context, name, a, b string, within inspect.Tolerance) ([]string, error) {
	bytesDiffer := []string{fmt.Sprintf("file %s: the bytes differ", text.Clean(name))}
	d, err := compareContents(ctx, a, b, within)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil: // a file of another kind, of which only the bytes are compared
		all.others++
		return bytesDiffer, nil
	}
	all.add(d)
	if d.Same {
		all.alike++
		return nil, nil
	}
	all.apart++
	lines := describeDifference(d)
	for i, line := range lines {
		lines[i] = fmt.Sprintf("file %s: %s", text.Clean(name), line)
	}
	return lines, nil
}

func compareContents(ctx context.Context, a, b string, within inspect.Tolerance) (d *inspect.Difference, err error) {
	x, err := inspect.OpenFile(a)
	if err != nil {
		return nil, err
	}
	defer closing(x, &err)
	y, err := inspect.OpenFile(b)
	if err != nil {
		return nil, err
	}
	defer closing(y, &err)
	return inspect.Compare(ctx, x, y, within)
}

func closing(c *inspect.Contents, err *error) {
	if failed := c.Close(); failed != nil && !errors.Is(failed, fs.ErrClosed) {
		*err = errors.Join(*err, failed)
	}
}

// add merges the comparison of one file into that of all.
func (all *readFiles) add(d *inspect.Difference) {
	if all.farthest == nil {
		all.farthest = &inspect.Difference{}
	}
	sum := all.farthest
	sum.OnlyA, sum.OnlyB = append(sum.OnlyA, d.OnlyA...), append(sum.OnlyB, d.OnlyB...)
	sum.Tensors, sum.Values = append(sum.Tensors, d.Tensors...), append(sum.Values, d.Values...)
	if d.MaxAbs != nil && (sum.MaxAbs == nil || sum.MaxAbs.By < d.MaxAbs.By) {
		sum.MaxAbs = d.MaxAbs
	}
	if d.MaxRel != nil && (sum.MaxRel == nil || sum.MaxRel.By < d.MaxRel.By) {
		sum.MaxRel = d.MaxRel
	}
}

// whatIsEqual describes in what files are equal whose bytes differ.
func (all *readFiles) whatIsEqual(within inspect.Tolerance) string {
	if all.farthest.MaxAbs == nil {
		return "they hold: only how it is written differs"
	}
	return fmt.Sprintf("they hold, within %s; %s", tolerated(within), all.farthest.Farthest())
}

// tolerated formats a tolerance as on the command line.
func tolerated(t inspect.Tolerance) string { return fmt.Sprintf("--rtol %g --atol %g", t.Rel, t.Abs) }

// rounding is the largest difference that rounding can cause in the few steps of a rehearsal. Larger differences come from the program.
const rounding = 1e-4

// adviceOn explains a difference that is small enough for rounding, and how to allow it. It returns "" for other differences.
func adviceOn(d *inspect.Difference) string {
	if d.MaxAbs == nil || d.MaxAbs.By > rounding || len(d.OnlyA)+len(d.OnlyB)+len(d.Values) > 0 {
		return ""
	}
	for _, t := range d.Tensors {
		if t.Elements == 0 || t.NonFinite > 0 || t.MaxAbs == nil {
			return ""
		}
	}
	return fmt.Sprintf("\nDifferences as small as these come from rounding when sums are computed in another order: "+
		"DistributedDataParallel lays out its buckets anew after a start, "+
		"so that an all-reduce of three or more ranks adds in another order. --atol %.0e allows them.",
		math.Pow(10, math.Ceil(math.Log10(d.MaxAbs.By))))
}
