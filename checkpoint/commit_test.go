package checkpoint

import (
	"errors"
	"strings"
	"testing"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
)

// wantRefused wants Save to refuse a save that would count for nothing, and to leave nothing behind.
func wantRefused(t *testing.T, m *vfstest.Mem, d *Dir, s *State) {
	t.Helper()
	before := strings.Join(tree(t, m), "\n")
	info, err := d.Save(t.Context(), s)
	wantErr(t, "Save", err, ErrFenced)
	if after := strings.Join(tree(t, m), "\n"); info.Committed || after != before {
		t.Errorf("%+v; the folder holds\n%s\nheld\n%s", info, after, before)
	}
}

// Save refuses a step that a later attempt has saved or given up.
func TestSaveThatWouldNotCountIsRefused(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	one := attempt(t, m, 1, Policy{})
	save(t, one, testState(10, 1))
	tool := openDir(t, Options{FS: m, Run: "r"})
	wantRefused(t, m, tool, testState(10, 2))
	save(t, tool, testState(20, 2)) // no attempt has saved it or given it up
	two := attempt(t, m, 2, Policy{})
	begin(t, two, 10)
	wantRefused(t, m, one, testState(30, 1))
	wantRefused(t, m, tool, testState(30, 2))
	save(t, one, testState(5, 1)) // earlier than the step that attempt 2 resumed from
	save(t, openDir(t, Options{FS: m, Run: "other", Attempt: 1}), testState(10, 3))
	save(t, two, testState(10, 4))
	s, _, err := two.Latest(t.Context())
	must(t, err)
	wantState(t, s, testState(10, 4))
}

// deltaState returns testState and a tensor of noise that is the same in every step.
func deltaState(step int64) *State {
	noise := make([]byte, 50_000)
	fillNoise(noise, 1)
	s := testState(step, 0)
	s.Tensors = append(s.Tensors, Tensor{Name: "noise", DType: "float32", Shape: []int{len(noise) / 4}, Data: noise})
	return s
}

// deltas makes a folder with a full checkpoint of step 1, and checkpoints of steps 2 and 3 that are deltas of it.
func deltas(t *testing.T, o Options) (*Dir, []*State) {
	t.Helper()
	d := openDir(t, o)
	var states []*State
	var base *Checkpoint
	for step := int64(1); step <= 3; step++ {
		s := deltaState(step)
		states = append(states, s)
		if base == nil {
			var err error
			base, err = split(t, d, s, 2, nil, Commit{})
			must(t, err)
			continue
		}
		c, err := split(t, d, s, 2, states[0], Commit{Base: base})
		must(t, err)
		must(t, c.Close())
	}
	return d, states
}

func TestDeltasLoadWithTheirBase(t *testing.T) {
	t.Parallel()
	d, states := deltas(t, Options{FS: vfstest.New(t), Keep: Policy{Last: 2}, Attempt: 1})
	wantList(t, d, "1 committed, 2 committed, 3 committed") // step 1 stays because it is their base
	for _, s := range states {
		got, err := d.Load(t.Context(), s.Step)
		must(t, err)
		wantState(t, got, s)
		must(t, VerifyStep(t.Context(), d, s.Step))
	}
	list, err := d.List(t.Context())
	must(t, err)
	for i, want := range []int64{-1, 1, 1} {
		if list[i].BaseStep != want {
			t.Errorf("step %d has the base %d, want %d", list[i].Step, list[i].BaseStep, want)
		}
	}
	if 10*list[1].Bytes > list[0].Bytes {
		t.Errorf("a delta takes %d bytes, its base %d", list[1].Bytes, list[0].Bytes)
	}
	for step := int64(4); step <= 5; step++ { // these are full, so nothing needs the base any longer
		save(t, d, testState(step, 0))
	}
	wantList(t, d, "4 committed, 5 committed")
}

// If the base of a delta is missing, damaged or replaced by another checkpoint, the delta is corrupt and is skipped. Reject does not rename
// the delta, since its own bytes are good, but it sets a damaged base aside.
func TestDeltaOfALostBaseIsPassedOver(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"missing", "another", "damaged"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			m := vfstest.New(t)
			d, _ := deltas(t, Options{FS: m, Attempt: 1, Codec: "auto"})
			c, err := d.Find(t.Context(), 3)
			must(t, err)
			base := d.stepPath(1)
			switch what {
			case "missing":
				must(t, m.Rename(base, base+".elsewhere"))
			case "another":
				must(t, m.Rename(base, base+".elsewhere"))
				save(t, openDir(t, Options{FS: m, Attempt: 1}), testState(1, 9))
			case "damaged":
				shard := find(t, m, base, "shard-00001")
				data := vfstest.Read(t, m, shard)
				vfstest.Put(t, m, shard, flip(data, 8*len(data)/2)) // in the noise
			}
			must(t, c.Close())
			wantErr(t, "Verify", VerifyStep(t.Context(), d, 3), ErrCorrupt)
			must(t, d.Reject(t.Context(), c))
			if _, err = m.Stat(d.stepPath(3)); err != nil {
				t.Error("the delta was renamed")
			}
			if _, err = m.Stat(base); (err == nil) != (what == "another") {
				t.Errorf("the base: %v", err)
			}
			must(t, c.Close())
			_, _, err = d.Latest(t.Context())
			if what == "another" {
				must(t, err)
			} else {
				wantErr(t, "Latest", err, ErrCorrupt)
			}
		})
	}
}

// Commit refuses an unsuitable base before it commits anything.
func TestBadBaseIsRefused(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d, states := deltas(t, Options{FS: m, Attempt: 1})
	open := func(step int64) *Checkpoint {
		c, err := d.Find(t.Context(), step)
		must(t, err)
		t.Cleanup(func() { must(t, c.Close()) })
		return c
	}
	full := open(1)
	for name, try := range map[string]func() error{
		"a delta":        func() error { _, err := split(t, d, deltaState(4), 2, states[1], Commit{Base: open(2)}); return err },
		"other shards":   func() error { _, err := split(t, d, deltaState(4), 3, states[0], Commit{Base: full}); return err },
		"of a later one": func() error { _, err := split(t, d, deltaState(0), 2, states[0], Commit{Base: full}); return err },
	} {
		if err := try(); err == nil {
			t.Errorf("%s is taken for a base", name)
		}
	}
	must(t, m.Rename(d.stepPath(1)+"/"+manifest.Name, d.stepPath(1)+"/"+manifest.DeletingName))
	if _, err := split(t, d, deltaState(4), 2, states[0], Commit{Base: full}); err == nil || errors.Is(err, ErrCorrupt) {
		t.Errorf("a base that was removed meanwhile: %v", err)
	}
	if _, err := m.Stat(d.stepPath(4)); err == nil {
		t.Error("a draft that was refused stays")
	}
}

// Retention after a commit keeps the base of the new delta, even if other processes have saved so many checkpoints since that no other rule
// would keep it.
func TestRetentionKeepsTheBaseOfANewDelta(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := attempt(t, m, 1, Policy{Last: 2})
	full, err := split(t, d, deltaState(100), 2, nil, Commit{})
	must(t, err)
	for _, step := range []int64{200, 300} {
		save(t, attempt(t, m, 1, Policy{}), testState(step, 0))
	}
	c, err := split(t, d, deltaState(150), 2, deltaState(100), Commit{Base: full})
	must(t, err)
	must(t, c.Close())
	must(t, VerifyStep(t.Context(), d, 150))
	wantList(t, d, "100 committed, 150 committed, 200 committed, 300 committed")
}

func TestDeltaWithoutBaseIsNotCommitted(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := attempt(t, m, 1, Policy{})
	if _, err := split(t, d, deltaState(2), 2, deltaState(1), Commit{}); err == nil {
		t.Error("it is committed")
	}
	if files := tree(t, m); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
}
