package checkpoint_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
)

// keptFolder is a folder in which a property test saves and prunes, and a model of what must be there.
type keptFolder struct {
	fs      *vfstest.Mem
	attempt int
	step    int64
	alive   []kept // the history that counts, oldest first; a policy may have removed some
	foreign map[string]string
	bases   map[int64]*checkpoint.State // full checkpoints of this attempt
}

type kept struct {
	step    int64
	attempt int
	base    int64 // -1 means a full checkpoint
	pinned  bool
}

func (k *keptFolder) open(t *rapid.T, p checkpoint.Policy) *checkpoint.Dir {
	d, err := checkpoint.Open(hardPath, checkpoint.Options{FS: k.fs, Run: "keep", Attempt: k.attempt, Keep: p})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// begin starts a new attempt. It resumes from the newest checkpoint, or from an older one that is still there, as an attempt does that
// cannot read the newest.
func (k *keptFolder) begin(t *rapid.T) {
	k.attempt++
	k.bases = map[int64]*checkpoint.State{}
	d := k.open(t, checkpoint.Policy{})
	var from *checkpoint.Checkpoint
	for back := rapid.IntRange(0, 2).Draw(t, "back"); len(k.alive) > 0 && from == nil; back-- {
		last := k.alive[len(k.alive)-1]
		if back > 0 && len(k.alive) > 1 {
			k.alive = k.alive[:len(k.alive)-1]
			continue
		}
		c, err := d.Find(t.Context(), last.step)
		if errors.Is(err, checkpoint.ErrNone) { // removed by a policy
			k.alive = k.alive[:len(k.alive)-1]
			continue
		}
		if err == nil && c.Info().Attempt != last.attempt { // it was removed, but a superseded save of the step is still there
			c.Close()
			k.alive = k.alive[:len(k.alive)-1]
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		from, k.step = c, last.step
	}
	if from == nil {
		k.step = 0
	} else {
		defer from.Close()
	}
	if err := d.Begin(t.Context(), from); err != nil {
		t.Fatal(err)
	}
}

func (k *keptFolder) policy(t *rapid.T) checkpoint.Policy {
	p := checkpoint.Policy{Last: rapid.IntRange(2, 4).Draw(t, "last")}
	if rapid.Bool().Draw(t, "every?") {
		p.Every = int64(rapid.IntRange(2, 5).Draw(t, "every"))
	}
	if rapid.IntRange(0, 3).Draw(t, "within?") == 0 {
		p.Within = time.Hour // all of them
	}
	if rapid.Bool().Draw(t, "best?") {
		p.Best, p.Metric, p.Max = rapid.IntRange(1, 3).Draw(t, "best"), "loss", rapid.Bool().Draw(t, "max")
	}
	return p
}

// save saves the next step with a random policy, in full or as a delta of a full checkpoint of this attempt.
func (k *keptFolder) save(t *rapid.T) {
	k.step++
	d := k.open(t, k.policy(t))
	s := hardState(k.step, k.attempt)
	now := kept{step: k.step, attempt: k.attempt, base: -1}
	var base *checkpoint.Checkpoint
	var baseState *checkpoint.State
	for step, state := range k.bases {
		if c, err := d.Find(t.Context(), step); err == nil && rapid.Bool().Draw(t, "delta") {
			base, baseState, now.base = c, state, step
			defer c.Close()
			break
		}
	}
	if err := draftSave(d, s, 2, base, baseState); err != nil {
		t.Fatalf("step %d: %v", k.step, err)
	}
	if base == nil {
		k.bases = map[int64]*checkpoint.State{k.step: s}
	}
	k.alive = append(k.alive, now)
}

func (k *keptFolder) pin(t *rapid.T) {
	i := rapid.IntRange(0, len(k.alive)-1).Draw(t, "pin")
	err := k.open(t, checkpoint.Policy{}).Pin(t.Context(), k.alive[i].step, fmt.Sprintf("p%d", k.alive[i].step))
	if err == nil {
		k.alive[i].pinned = true
	} else if !errors.Is(err, checkpoint.ErrNone) {
		t.Fatal(err)
	}
}

// strew puts a foreign folder with a file among the checkpoints.
func (k *keptFolder) strew(t *rapid.T) {
	name := rapid.SampledFrom([]string{
		"step-000000000001-copy", "notes.txt", "step-1", "step-000000000001.broken", "MANIFEST.json", "attempt-x.json", "best",
	}).Draw(t, "foreign")
	path := filepath.Join(hardPath, name)
	if _, ok := k.foreign[path]; ok {
		return
	}
	if err := k.fs.Mkdir(path); err != nil {
		t.Fatal(err)
	}
	f, err := k.fs.Create(filepath.Join(path, "mine"))
	if err != nil {
		t.Fatal(err)
	}
	k.foreign[path] = filepath.Join(path, "mine")
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// prune calls Prune with a random policy and compares the outcome with the plan.
func (k *keptFolder) prune(t *rapid.T) {
	p := k.policy(t)
	d := k.open(t, checkpoint.Policy{})
	before := k.present(t, d)
	plan, err := d.Plan(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	done, err := d.Prune(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(plan) != fmt.Sprint(done) {
		t.Fatalf("planned %v, done %v", plan, done)
	}
	list, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, decision := range plan {
		if decision.Keep {
			want = append(want, decision.Path)
		}
		if len(decision.Reasons) == 0 {
			t.Fatalf("no reason for %+v", decision)
		}
	}
	for _, info := range list {
		got = append(got, info.Path)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("left are %v, planned were %v", got, want)
	}
	after := k.present(t, d)
	for i, one := range before {
		if (i < p.Last || one.pinned) && !slices.Contains(after, one) {
			t.Fatalf("step %d is gone: it was number %d of the newest, pinned %v; the policy is %+v", one.step, i+1, one.pinned, p)
		}
	}
}

// present returns the checkpoints of the history that counts that no policy has removed, newest first.
func (k *keptFolder) present(t *rapid.T, d *checkpoint.Dir) (there []kept) {
	list, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range slices.Backward(k.alive) {
		if slices.ContainsFunc(list, func(i checkpoint.Info) bool {
			return i.Step == one.step && i.Attempt == one.attempt && i.State == checkpoint.StateCommitted
		}) {
			there = append(there, one)
		}
	}
	return there
}

func (k *keptFolder) look(t *rapid.T) {
	d := k.open(t, checkpoint.Policy{})
	list, err := d.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range list {
		if info.State == checkpoint.StateBroken && !strings.Contains(info.Path, ".broken") || info.State == checkpoint.StateNewer {
			t.Fatalf("%s is %s: a base is missing, or a shard", info.Path, info.State)
		}
	}
	for path, file := range k.foreign {
		if _, err := k.fs.Stat(file); err != nil {
			t.Fatalf("somebody else's %s: %v", path, err)
		}
	}
	if len(k.alive) == 0 {
		return
	}
	newest := k.alive[len(k.alive)-1]
	s, info, err := d.Latest(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Step != newest.step || info.Attempt != newest.attempt {
		t.Fatalf("the latest is step %d of attempt %d, want %d of %d", info.Step, info.Attempt, newest.step, newest.attempt)
	}
	if err := hardSame(s, hardState(newest.step, newest.attempt)); err != nil {
		t.Fatal(err)
	}
	for _, info := range list {
		if info.State == checkpoint.StateCommitted {
			if err := checkpoint.VerifyFolder(t.Context(), d, filepath.Base(info.Path)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestRetentionKeepsWhatCounts saves full checkpoints and deltas in several attempts, with random policies, pins, foreign files and calls
// of Prune. The newest checkpoint of the history that counts is never lost, nor are its fallback, pinned checkpoints and the bases of those
// that stay. Foreign files stay as they are.
func TestRetentionKeepsWhatCounts(t *testing.T) { // without the race detector
	t.Parallel()
	property := func(t *rapid.T) {
		k := &keptFolder{fs: vfstest.NewMem(), foreign: map[string]string{}}
		if err := errors.Join(k.fs.Mkdir("/run"), k.fs.Mkdir(hardPath)); err != nil {
			t.Fatal(err)
		}
		k.begin(t)
		k.save(t)
		for range rapid.IntRange(1, 15).Draw(t, "actions") {
			rapid.SampledFrom([]func(*rapid.T){k.save, k.save, k.save, k.prune, k.pin, k.strew, k.begin}).Draw(t, "action")(t)
			if len(k.alive) == 0 {
				k.save(t)
			}
			k.look(t)
		}
	}
	thin.Property(t, func() { rapid.Check(t, property) }, rapid.MakeFuzz(property))
}
