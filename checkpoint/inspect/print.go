package inspect

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/text"
)

// Printer prints what there is to know about checkpoints, for people.
type Printer struct {
	Out   io.Writer
	From  text.Dir
	Table func(heading ...string) *text.Table
}

// List prints a row for each checkpoint.
func (p Printer) List(infos []checkpoint.Info) error {
	t := p.Table("STEP", "STATE", "SIZE", "RATIO", "WORLD", "ATTEMPT", "BASE", "METRICS", "PINNED", "CREATED", "PATH")
	for _, i := range infos {
		base := "-"
		if i.BaseStep >= 0 {
			base = strconv.FormatInt(i.BaseStep, 10)
		}
		t.Row(strconv.FormatInt(i.Step, 10), i.State, t.Size(i.Bytes), ratio(i.Bytes, i.RawBytes), strconv.Itoa(i.World),
			strconv.Itoa(i.Attempt),
			base, metricsText(i.Metrics), pinnedText(i.Pinned), timeText(i.Created), p.From.Short(i.Path))
	}
	return t.Flush()
}

// Description prints everything known about a checkpoint.
func (p Printer) Description(s *Description) error {
	kind := "full"
	if s.BaseStep >= 0 {
		kind = fmt.Sprintf("differences from step %d", s.BaseStep)
	}
	fmt.Fprintf(p.Out, "step %d, saved by %s\n", s.Step, text.Plural(s.World, "rank"))
	fmt.Fprintf(p.Out, "path: %s\n", p.From.Short(s.Path))
	fmt.Fprintf(p.Out, "run: %s, attempt %d, saved %s by %s\n",
		cmp.Or(text.Clean(s.Run), "-"), s.Attempt, timeText(s.Created), cmp.Or(text.Clean(s.Program), "-"))
	fmt.Fprintf(p.Out, "format: version %d, %s\n", s.Version, kind)
	fmt.Fprintf(p.Out, "bytes: %d on disk for %d of tensors (%s)\n", s.Bytes, s.RawBytes, ratio(s.Bytes, s.RawBytes))
	fmt.Fprintf(p.Out, "metrics: %s\npinned: %s\n", metricsText(s.Metrics), text.Clean(pinnedText(s.Pinned)))
	t := p.Table("TENSOR", "TYPE", "SHAPE", "BYTES", "STORED", "RATIO", "CODECS")
	for _, x := range s.Tensors {
		t.Row(x.Name, x.DType, fmt.Sprint(x.Shape), t.Size(x.Bytes), t.Size(x.Stored), ratio(x.Stored, x.Bytes), codecsText(x.Codecs))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(s.Values) > 0 {
		t = p.Table("VALUE", "IS")
		for _, key := range slices.Sorted(maps.Keys(s.Values)) {
			t.Row(key, shorten(string(s.Values[key])))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	t = p.Table("SHARD", "SIZE", "TENSORS' BYTES", "CRC32C")
	for _, x := range s.Shards {
		t.Row(x.File, t.Size(x.Size), t.Size(x.Raw), x.CRC)
	}
	return t.Flush()
}

// Pruned prints what was kept and removed, or with dryRun would be, and returns a sentence with the totals.
func (p Printer) Pruned(rows []Pruned, dryRun bool) (sum string, err error) {
	t := p.Table("STEP", "DO", "SIZE", "CREATED", "REASONS", "PATH")
	freed, gone := int64(0), 0
	for _, r := range rows {
		what := "KEEP"
		switch {
		case r.Keep:
		case dryRun || r.Removed:
			what = "REMOVE"
			freed, gone = freed+r.Bytes, gone+1
		default:
			what = "FAILED"
		}
		t.Row(strconv.FormatInt(r.Step, 10), what, t.Size(r.Bytes), timeText(r.Created),
			cmp.Or(strings.Join(r.Reasons, ", "), "-"), p.From.Short(r.Path))
	}
	if err := t.Flush(); err != nil {
		return "", err
	}
	done := "removed"
	if dryRun {
		done = "would remove"
	}
	return fmt.Sprintf("%s %s, %s", done, text.Plural(gone, "checkpoint"), t.Bytes(freed)), nil
}

// Difference prints how two contents differ.
func (p Printer) Difference(d *Difference) error {
	for _, name := range d.OnlyA {
		fmt.Fprintf(p.Out, "only in the first: %s\n", text.Clean(name))
	}
	for _, name := range d.OnlyB {
		fmt.Fprintf(p.Out, "only in the second: %s\n", text.Clean(name))
	}
	if len(d.Tensors) > 0 {
		t := p.Table("TENSOR", "IS", "DIFFER", "OF", "MAX ABS", "MAX REL")
		for _, x := range d.Tensors {
			t.Row(x.Name, x.Is(), strconv.FormatInt(x.Differ, 10), strconv.FormatInt(x.Elements, 10), x.AtMost(), number(x.MaxRel))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, v := range d.Values {
		fmt.Fprintln(p.Out, v)
	}
	values := ""
	if n := len(d.Values); n > 0 {
		values = fmt.Sprintf("; values that differ: %d", n)
	}
	if d.MaxAbs != nil {
		fmt.Fprintln(p.Out, d.Farthest())
	}
	differ := len(d.Tensors) + len(d.OnlyA) + len(d.OnlyB)
	_, err := fmt.Fprintf(p.Out, "%s the same, %d not%s\n", text.Plural(d.Equal, "tensor"), differ, values)
	return err
}

// AtMost returns the largest distance of the elements, for a person to read.
func (d TensorDiffers) AtMost() string { return number(d.MaxAbs) }

// String returns the value on both sides, for a person to read.
func (v ValueDiffers) String() string {
	return fmt.Sprintf("value %s: %s and %s", text.Clean(v.Name), valueText(v.A), valueText(v.B))
}

func valueText(value *string) string {
	if value == nil {
		return "none"
	}
	return shorten(text.Clean(*value))
}

func number(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'g', 4, 64)
}

// codecsText returns which part of a tensor each codec stores, the largest part first.
func codecsText(codecs map[string]int64) string {
	total := int64(0)
	for _, n := range codecs {
		total += n
	}
	names := slices.SortedFunc(maps.Keys(codecs), func(a, b string) int {
		return cmp.Or(cmp.Compare(codecs[b], codecs[a]), strings.Compare(a, b))
	})
	for i, name := range names {
		if len(names) > 1 {
			names[i] = name + " " + strconv.FormatFloat(100*float64(codecs[name])/float64(max(total, 1)), 'f', 0, 64) + "%"
		}
	}
	return cmp.Or(strings.Join(names, ", "), "-")
}

// shorten cuts a text so that it fits into a line.
func shorten(line string) string {
	const most = 100
	if runes := []rune(line); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return line
}

// ratio returns the size on disk relative to the size of the tensors.
func ratio(stored, raw int64) string {
	if raw <= 0 {
		return "-"
	}
	return strconv.FormatFloat(float64(stored)/float64(raw), 'f', 3, 64)
}

func metricsText(metrics map[string]float64) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(metrics)) {
		words = append(words, key+"="+strconv.FormatFloat(metrics[key], 'g', 6, 64))
	}
	return cmp.Or(strings.Join(words, " "), "-")
}

func pinnedText(labels []string) string {
	words := slices.Clone(labels)
	for i, label := range words {
		if label == "" {
			words[i] = "yes"
		}
	}
	return cmp.Or(strings.Join(words, ","), "-")
}

func timeText(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Local().Format(time.DateTime)
}
