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

// readFiles is what became of the files whose bytes differ: of those that can be read, as PyTorch's and safetensors can, their tensors and
// values are compared.
type readFiles struct {
	alike, apart, others int                 // equal but for their bytes; not; with no more than their bytes to compare
	farthest             *inspect.Difference // of all files together; nil: none was read
}

// compare holds two files against each other, and returns how they differ, a line each; none: their contents are the same.
func (all *readFiles) compare(ctx context.Context, name, a, b string, within inspect.Tolerance) ([]string, error) {
	bytesDiffer := []string{fmt.Sprintf("file %s: the bytes differ", text.Clean(name))}
	d, err := compareContents(ctx, a, b, within)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil: // a file of another kind, or one that is read as far as its bytes
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

// add keeps what matters of all files together.
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

// whatIsEqual says how files are equal whose bytes are not.
func (all *readFiles) whatIsEqual(within inspect.Tolerance) string {
	if all.farthest.MaxAbs == nil {
		return "they hold: only how it is written differs"
	}
	return fmt.Sprintf("they hold, within %s; %s", tolerated(within), all.farthest.Farthest())
}

// tolerated is a tolerance in the words of the command line.
func tolerated(t inspect.Tolerance) string { return fmt.Sprintf("--rtol %g --atol %g", t.Rel, t.Abs) }

// rounding is the largest difference that rounding may have made, in a rehearsal's few steps: larger ones are a program's.
const rounding = 1e-4

// adviceOn says where a difference comes from that is as small as rounding makes it, and what lets it pass; "": it is not of that kind.
func adviceOn(d *inspect.Difference) string {
	if d.MaxAbs == nil || d.MaxAbs.By > rounding || len(d.OnlyA)+len(d.OnlyB)+len(d.Values) > 0 {
		return ""
	}
	for _, t := range d.Tensors {
		if t.Elements == 0 || t.NonFinite > 0 || t.MaxAbs == nil {
			return ""
		}
	}
	return fmt.Sprintf("\nDifferences as small as these come from sums in another order, as floats round: "+
		"DistributedDataParallel lays out its buckets "+
		"anew after a start, and of three ranks or more an all-reduce then adds in another order. --atol %.0e lets them pass.",
		math.Pow(10, math.Ceil(math.Log10(d.MaxAbs.By))))
}
