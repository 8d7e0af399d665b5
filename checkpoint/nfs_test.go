package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/internal/testkit/thin"
	"ddpbatch/internal/testkit/vfstest"
)

// TestSavesSurviveLostReplies saves through a client that loses about every third reply of the file server. Save must find out what has
// happened: every save succeeds, and no checkpoint is lost or stays too long.
func TestSavesSurviveLostReplies(t *testing.T) { // without the race detector
	t.Parallel()
	for seed := 0; seed < 24; seed += thin.Step(4) {
		m := vfstest.New(t)
		if err := lostReplies(t, m, uint64(seed)); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(hardFiles(t, m, hardPath), "\n"))
		}
	}
}

func lostReplies(t *testing.T, m *vfstest.Mem, seed uint64) error {
	ctx := context.Background()
	client := vfstest.NewView(m, seed)
	client.LoseReplies(33)
	newest := int64(0)
	for attempt := 1; attempt <= 3; attempt++ {
		d := hardOpen(t, checkpoint.Options{FS: client, Run: "nfs", Attempt: attempt, Keep: checkpoint.Policy{Last: 2}})
		resumed, err := resume(d)
		if err != nil {
			return fmt.Errorf("attempt %d: resume: %w", attempt, err)
		}
		if resumed != newest {
			return fmt.Errorf("attempt %d resumes from step %d, want %d", attempt, resumed, newest)
		}
		for range 4 {
			newest += 10
			if _, err := d.Save(ctx, hardState(newest, attempt)); err != nil {
				return fmt.Errorf("attempt %d, step %d: %w", attempt, newest, err)
			}
		}
	}
	plain := hardOpen(t, checkpoint.Options{FS: m, Run: "nfs"})
	list, err := plain.List(ctx)
	if err != nil {
		return err
	}
	for _, info := range list {
		if info.State == checkpoint.StateCommitted && info.Step <= newest-20 {
			return fmt.Errorf("step %d is still there: retention keeps two", info.Step)
		}
	}
	for _, step := range []int64{newest, newest - 10} {
		s, err := plain.Load(ctx, step)
		if err != nil {
			return err
		}
		if err := hardSame(s, hardState(step, 3)); err != nil {
			return err
		}
	}
	return nil
}

// The probe before training does not take lost replies for faults, and removes its file.
func TestProbeSurvivesLostReplies(t *testing.T) { // without the race detector
	t.Parallel()
	for seed := range uint64(40) {
		m := vfstest.New(t)
		client := vfstest.NewView(m, seed)
		client.LoseReplies(50)
		d := hardOpen(t, checkpoint.Options{FS: client, Run: "nfs", Attempt: 1})
		if _, err := d.Probe(t.Context(), "here"); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if left := hardFiles(t, m, hardPath); len(left) > 0 {
			t.Fatalf("seed %d: left over: %v", seed, left)
		}
	}
}

// TestStaleReaderCallsNothingCorrupt reads through a client whose caches are several saves old, while another client saves and removes. The
// reader may find an older checkpoint or get an error that says to try again. It must never report what it sees as corrupt, since rank 0
// of a run would then give up a good checkpoint.
func TestStaleReaderCallsNothingCorrupt(t *testing.T) { // without the race detector
	t.Parallel()
	for held := int64(1); held <= 5; held++ {
		m := vfstest.New(t)
		ctx := t.Context()
		writer := hardOpen(t, checkpoint.Options{FS: vfstest.NewView(m, 1), Run: "nfs", Attempt: 1, Keep: checkpoint.Policy{Last: 2}})
		need(t, writer.Begin(ctx, nil))
		client := vfstest.NewView(m, 2)
		reader := hardOpen(t, checkpoint.Options{FS: client, Run: "nfs", Attempt: 2})
		for step := int64(1); step <= 6; step++ {
			_, err := writer.Save(ctx, hardState(step, 0))
			need(t, err)
			if step == held {
				client.Hold()
			}
			look, cancel := ctx, context.CancelFunc(func() {})
			if step >= held { // Latest searches again, for longer than a test may take
				look, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
			}
			s, info, err := reader.Latest(look)
			cancel()
			if errors.Is(err, checkpoint.ErrCorrupt) {
				t.Fatalf("held at %d, saved %d: a stale view is taken for corruption: %v", held, step, err)
			}
			if step < held && err != nil {
				t.Fatalf("saved %d, a fresh view: %v", step, err)
			}
			if err == nil {
				need(t, hardSame(s, hardState(info.Step, 0)))
			}
		}
		client.Refresh()
		_, info, err := reader.Latest(ctx)
		need(t, err)
		if info.Step != 6 {
			t.Errorf("held at %d: the fresh view's latest is %d, want 6", held, info.Step)
		}
	}
}

// If another client removes a checkpoint that is open, reading it returns ErrStale, not ErrCorrupt, and Reject does not reject it.
func TestRemovedCheckpointReadsAsStale(t *testing.T) { // without the race detector
	t.Parallel()
	m := vfstest.New(t)
	ctx := t.Context()
	writer := hardOpen(t, checkpoint.Options{FS: vfstest.NewView(m, 1), Run: "nfs", Attempt: 1, Keep: checkpoint.Policy{Last: 2}})
	_, err := writer.Save(ctx, hardState(1, 0))
	need(t, err)
	reader := hardOpen(t, checkpoint.Options{FS: vfstest.NewView(m, 2), Run: "nfs", Attempt: 2})
	c, err := reader.FindLatest(ctx)
	need(t, err)
	defer c.Close()
	for step := int64(2); step <= 4; step++ {
		_, err := writer.Save(ctx, hardState(step, 0))
		need(t, err)
	}
	if err := c.Verify(ctx); err == nil || errors.Is(err, checkpoint.ErrCorrupt) {
		t.Errorf("a removed checkpoint: %v, want an error that is not corruption", err)
	}
	before := hardFiles(t, m, hardPath)
	if err := reader.Reject(ctx, c); err == nil {
		t.Error("a removed checkpoint is rejected")
	}
	if after := hardFiles(t, m, hardPath); strings.Join(after, "\n") != strings.Join(before, "\n") {
		t.Errorf("rejecting changed\n%v to\n%v", before, after)
	}
}

// The clients of the other ranks have stale listings and negative lookups of the folder that rank 0 makes. A draft that they join by its
// ticket either works or fails. It never commits what does not exist.
func TestDraftOfStaleClientsWorksOrFails(t *testing.T) { // without the race detector
	t.Parallel()
	m := vfstest.New(t)
	ctx := t.Context()
	zero := hardOpen(t, checkpoint.Options{FS: vfstest.NewView(m, 1), Run: "nfs", Attempt: 1})
	need(t, draftSave(zero, hardState(1, 0), 2, nil, nil))
	client := vfstest.NewView(m, 2)
	client.Hold()
	one := hardOpen(t, checkpoint.Options{FS: client, Run: "nfs", Attempt: 1})
	draft, err := zero.NewDraft(ctx, 2)
	need(t, err)
	data := []byte("12345678")
	piece := checkpoint.Piece{Tensor: "x", DType: "uint8", Shape: []int{8}, Data: data}
	joined, err := one.JoinDraft(draft.Ticket())
	need(t, err)
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond) // WriteShard tries again, for longer than a test may take
	defer cancel()
	if _, err := joined.WriteShard(short, 0, 1, []checkpoint.Piece{piece}); err == nil {
		t.Error("a shard was written into a folder that its client does not see")
	}
	client.Refresh()
	info, err := joined.WriteShard(ctx, 0, 1, []checkpoint.Piece{piece})
	need(t, err)
	c, err := draft.Commit(ctx, checkpoint.Commit{
		World:   1,
		Tensors: []checkpoint.TensorPlan{{Name: "x", DType: "uint8", Shape: []int{8}, Extents: []checkpoint.Extent{{Length: 8}}}},
		Shards:  []checkpoint.ShardInfo{info},
	})
	need(t, err)
	defer c.Close()
	need(t, c.Verify(ctx))

	client.Hold() // next: a reader that got a message, with a listing older than the checkpoint
	need(t, draftSave(zero, hardState(3, 0), 2, nil, nil))
	newest, err := zero.FindLatest(ctx)
	need(t, err)
	defer newest.Close()
	client.Refresh()
	again, err := one.OpenManifest(newest.Folder(), newest.Manifest())
	need(t, err)
	defer again.Close()
	need(t, again.Verify(ctx))
}
