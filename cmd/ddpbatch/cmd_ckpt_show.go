package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/inspect"
	"ddpbatch/internal/text"
)

func newCkptLsCommand(e *env) *cli.Command {
	return ckptCommand(cli.Command{
		Name: "ls", Usage: "list a run's checkpoints, oldest first", ArgsUsage: "RUN",
		Description: example("ddpbatch ckpt ls 123", "ddpbatch ckpt ls --json runs/mnist-20261121-101500-1a2b3c4d"),
	}, 1, 1, nil, func(c *cli.Context, words []string) error {
		folder, dir, err := openCheckpoints(e, c, words[0])
		if err != nil {
			return err
		}
		infos, err := dir.List(c.Context)
		if err != nil {
			return err
		}
		if err := printCkptLs(e, infos, c.Bool("json")); err != nil {
			return err
		}
		if len(infos) == 0 {
			return folder.None()
		}
		return nil
	})
}

func printCkptLs(e *env, infos []checkpoint.Info, asJSON bool) error {
	if asJSON {
		return printJSON(e, append([]checkpoint.Info{}, infos...))
	}
	if len(infos) == 0 {
		return nil
	}
	t := newTable(e, "STEP", "STATE", "SIZE", "RATIO", "WORLD", "ATTEMPT", "BASE", "METRICS", "PINNED", "CREATED", "PATH")
	for _, i := range infos {
		t.Row(strconv.FormatInt(i.Step, 10), i.State, t.Size(i.Bytes), ratio(i.Bytes, i.RawBytes), strconv.Itoa(i.World), strconv.Itoa(i.Attempt),
			baseText(i.BaseStep), metricsText(i.Metrics), pinnedText(i.Pinned), timeText(i.Created), e.short(i.Path))
	}
	return t.Flush()
}

func newCkptShowCommand(e *env) *cli.Command {
	return ckptCommand(cli.Command{
		Name: "show", Usage: "show what a checkpoint holds: the newest that counts, or the step named", ArgsUsage: "RUN [STEP]",
		Description: example("ddpbatch ckpt show 123", "ddpbatch ckpt show 123 4000",
			"ddpbatch ckpt show --json runs/mnist-20261121-101500-1a2b3c4d/checkpoints/step-000000004000"),
	}, 1, 2, nil, func(c *cli.Context, words []string) error {
		folder, dir, err := openCheckpoints(e, c, words[0])
		if err != nil {
			return err
		}
		found, err := folder.Choose(c.Context, dir, append(words, "")[1])
		if err != nil {
			return err
		}
		defer found.Close()
		description, err := inspect.Describe(c.Context, dir, found)
		if err != nil {
			return err
		}
		if c.Bool("json") {
			return printJSON(e, description)
		}
		return printDescription(e, description)
	})
}

func printDescription(e *env, s *inspect.Description) error {
	kind := "full"
	if s.BaseStep >= 0 {
		kind = fmt.Sprintf("differences from step %d", s.BaseStep)
	}
	fmt.Fprintf(e.Out, "step %d, saved by %s\n", s.Step, text.Plural(s.World, "rank"))
	fmt.Fprintf(e.Out, "path: %s\nrun: %s, attempt %d, saved %s by %s\n", e.short(s.Path), orDash(text.Clean(s.Run)), s.Attempt, timeText(s.Created), orDash(text.Clean(s.Program)))
	fmt.Fprintf(e.Out, "format: version %d, %s\n", s.Version, kind)
	fmt.Fprintf(e.Out, "bytes: %d on disk for %d of tensors (%s)\n", s.Bytes, s.RawBytes, ratio(s.Bytes, s.RawBytes))
	fmt.Fprintf(e.Out, "metrics: %s\npinned: %s\n", metricsText(s.Metrics), text.Clean(pinnedText(s.Pinned)))
	t := newTable(e, "TENSOR", "TYPE", "SHAPE", "BYTES", "STORED", "RATIO", "CODECS")
	for _, x := range s.Tensors {
		t.Row(x.Name, x.DType, fmt.Sprint(x.Shape), t.Size(x.Bytes), t.Size(x.Stored), ratio(x.Stored, x.Bytes), codecsText(x.Codecs))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(s.Values) > 0 {
		t = newTable(e, "VALUE", "IS")
		for _, key := range slices.Sorted(maps.Keys(s.Values)) {
			t.Row(key, shorten(string(s.Values[key])))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	t = newTable(e, "SHARD", "SIZE", "TENSORS' BYTES", "CRC32C")
	for _, x := range s.Shards {
		t.Row(x.File, t.Size(x.Size), t.Size(x.Raw), x.CRC)
	}
	return t.Flush()
}

// codecsText says how much of a tensor each codec stores, the largest part first.
func codecsText(codecs map[string]int64) string {
	total := int64(0)
	for _, n := range codecs {
		total += n
	}
	names := slices.SortedFunc(maps.Keys(codecs), func(a, b string) int {
		if codecs[a] != codecs[b] {
			return int(min(1, max(-1, codecs[b]-codecs[a])))
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		if len(names) > 1 {
			names[i] = name + " " + strconv.FormatFloat(100*float64(codecs[name])/float64(max(total, 1)), 'f', 0, 64) + "%"
		}
	}
	return orDash(strings.Join(names, ", "))
}

// shorten keeps a line a line.
func shorten(line string) string {
	const most = 100
	if runes := []rune(line); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return line
}

// ratio is how much of the tensors' bytes is left on disk.
func ratio(stored, raw int64) string {
	if raw <= 0 {
		return "-"
	}
	return strconv.FormatFloat(float64(stored)/float64(raw), 'f', 3, 64)
}

func baseText(step int64) string {
	if step < 0 {
		return "-"
	}
	return strconv.FormatInt(step, 10)
}

func metricsText(metrics map[string]float64) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(metrics)) {
		words = append(words, key+"="+strconv.FormatFloat(metrics[key], 'g', 6, 64))
	}
	return orDash(strings.Join(words, " "))
}

func pinnedText(labels []string) string {
	words := slices.Clone(labels)
	for i, label := range words {
		if label == "" {
			words[i] = "yes"
		}
	}
	return orDash(strings.Join(words, ","))
}

func timeText(at time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return at.Local().Format(time.DateTime)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
