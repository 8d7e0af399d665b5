package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"ddpbatch/checkpoint"
)

func newCkptShowCommand(e *env) *cli.Command {
	return ckptCommand(cli.Command{
		Name: "show", Usage: "show what a checkpoint holds: the newest that counts, or the step named", ArgsUsage: "RUN [STEP]",
		Description: example("ddpbatch ckpt show 123", "ddpbatch ckpt show 123 4000",
			"ddpbatch ckpt show --json runs/mnist-20261121-101500-1a2b3c4d/checkpoints/step-000000004000"),
	}, 1, 2, nil, func(c *cli.Context, words []string) error {
		place, err := findCheckpoints(e, c, words[0])
		if err != nil {
			return err
		}
		dir, err := place.open(e)
		if err != nil {
			return err
		}
		found, err := place.choose(c.Context, e, dir, append(words, "")[1])
		if err != nil {
			return err
		}
		defer found.Close()
		pins, err := pinsOf(c.Context, dir, found)
		if err != nil {
			return err
		}
		return runCkptShow(c.Context, e, found, pins, c.Bool("json"))
	})
}

// shownCkpt is what show prints as JSON; its names are a contract.
type shownCkpt struct {
	Step     int64                      `json:"step"`
	World    int                        `json:"world"`
	Path     string                     `json:"path"`
	Run      string                     `json:"run"`
	Attempt  int                        `json:"attempt"`
	Created  time.Time                  `json:"created"`
	Version  int                        `json:"version"`
	Program  string                     `json:"program"`
	BaseStep int64                      `json:"base_step"`
	Bytes    int64                      `json:"bytes"`
	RawBytes int64                      `json:"raw_bytes"`
	Pinned   []string                   `json:"pinned"`
	Tensors  []shownTensor              `json:"tensors"`
	Values   map[string]json.RawMessage `json:"values"`
	Metrics  map[string]float64         `json:"metrics"`
	Shards   []shownShard               `json:"shards"`
}

type shownTensor struct {
	Name   string           `json:"name"`
	DType  string           `json:"dtype"`
	Shape  []int            `json:"shape"`
	Bytes  int64            `json:"bytes"`
	Stored int64            `json:"stored"`
	Delta  int64            `json:"delta"`
	Codecs map[string]int64 `json:"codecs"`
}

type shownShard struct {
	File string `json:"file"`
	Size int64  `json:"size"`
	Raw  int64  `json:"raw"`
	CRC  string `json:"crc32c"`
}

// pinsOf are the labels by which a checkpoint is pinned, which are no part of it.
func pinsOf(ctx context.Context, dir *checkpoint.Dir, c *checkpoint.Checkpoint) ([]string, error) {
	infos, err := dir.List(ctx)
	for _, info := range infos {
		if filepath.Base(info.Path) == c.Folder() {
			return info.Pinned, err
		}
	}
	return nil, err
}

func runCkptShow(ctx context.Context, e *env, c *checkpoint.Checkpoint, pins []string, asJSON bool) error {
	s, err := describeCkpt(ctx, c)
	if err != nil {
		return err
	}
	s.Pinned = append(s.Pinned, pins...)
	if asJSON {
		return printJSON(e, s)
	}
	return s.print(e)
}

// describeCkpt gathers what is known of a checkpoint without reading its data.
func describeCkpt(ctx context.Context, c *checkpoint.Checkpoint) (*shownCkpt, error) {
	info := c.Info()
	s := &shownCkpt{
		Step: c.Step(), World: c.World(), Path: info.Path, Run: info.Run, Attempt: info.Attempt, Created: info.Created, BaseStep: info.BaseStep,
		Bytes: info.Bytes, RawBytes: info.RawBytes, Pinned: []string{}, Values: c.Values(), Metrics: c.Metrics(),
	}
	// What nobody but a reader of manifests wants to know comes from the manifest itself (docs/format.md).
	if err := json.Unmarshal(c.Manifest(), &struct {
		Version *int          `json:"version"`
		Program *string       `json:"program"`
		Shards  *[]shownShard `json:"shards"`
	}{&s.Version, &s.Program, &s.Shards}); err != nil {
		return nil, fmt.Errorf("read the manifest of %s: %w", info.Path, err)
	}
	storage, err := c.Storage(ctx)
	if err != nil {
		return nil, err
	}
	s.Tensors = []shownTensor{}
	for i, t := range c.Tensors() {
		s.Tensors = append(s.Tensors, shownTensor{t.Name, t.DType, t.Shape, t.Bytes, storage[i].Stored, storage[i].Delta, storage[i].Codecs})
	}
	if s.Values == nil {
		s.Values = map[string]json.RawMessage{}
	}
	if s.Metrics == nil {
		s.Metrics = map[string]float64{}
	}
	return s, nil
}

func (s *shownCkpt) print(e *env) error {
	kind := "full"
	if s.BaseStep >= 0 {
		kind = fmt.Sprintf("differences from step %d", s.BaseStep)
	}
	fmt.Fprintf(e.Out, "step %d, saved by %s\n", s.Step, plural(s.World, "rank"))
	fmt.Fprintf(e.Out, "path: %s\nrun: %s, attempt %d, saved %s by %s\n", e.short(s.Path), orDash(clean(s.Run)), s.Attempt, timeText(s.Created), orDash(clean(s.Program)))
	fmt.Fprintf(e.Out, "format: version %d, %s\n", s.Version, kind)
	fmt.Fprintf(e.Out, "bytes: %d on disk for %d of tensors (%s)\n", s.Bytes, s.RawBytes, ratio(s.Bytes, s.RawBytes))
	fmt.Fprintf(e.Out, "metrics: %s\npinned: %s\n", metricsText(s.Metrics), clean(pinnedText(s.Pinned)))
	t := newTable(e, "TENSOR", "TYPE", "SHAPE", "BYTES", "STORED", "RATIO", "CODECS")
	for _, x := range s.Tensors {
		t.row(x.Name, x.DType, fmt.Sprint(x.Shape), t.size(x.Bytes), t.size(x.Stored), ratio(x.Stored, x.Bytes), codecsText(x.Codecs))
	}
	if err := t.flush(); err != nil {
		return err
	}
	if len(s.Values) > 0 {
		t = newTable(e, "VALUE", "IS")
		for _, key := range slices.Sorted(maps.Keys(s.Values)) {
			t.row(key, shorten(string(s.Values[key])))
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	t = newTable(e, "SHARD", "SIZE", "TENSORS' BYTES", "CRC32C")
	for _, x := range s.Shards {
		t.row(x.File, t.size(x.Size), t.size(x.Raw), x.CRC)
	}
	return t.flush()
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
func shorten(text string) string {
	const most = 100
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "..."
	}
	return text
}
