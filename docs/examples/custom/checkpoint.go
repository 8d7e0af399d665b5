package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
	"ddpbatch/trainer/optim"
)

// errStopped is returned by train after it was asked to stop and has saved.
var errStopped = errors.New("stopped after saving all progress")

// saver saves and restores the state of a training. The state is small and the same on all ranks, so only rank 0 reads and writes files.
// save and restore are collective.
type saver struct {
	comm *mpi.Comm
	dir  *checkpoint.Dir // nil, on all ranks, if nothing is saved
	all  []nn.Buffer     // the arrays of the state; their values are the memory that training changes
}

// newSaver returns a saver of the model and the optimizer that writes to the folder path, or that saves nothing if path is empty.
func newSaver(comm *mpi.Comm, path string, model nn.Module, optimizer optim.Optimizer) (*saver, error) {
	s := &saver{comm: comm}
	if path == "" {
		return s, nil
	}
	for _, p := range model.Params() {
		s.all = append(s.all, nn.Buffer{Name: "model." + p.Name, Shape: p.Shape, Value: p.Value})
	}
	for _, b := range model.Buffers() {
		s.all = append(s.all, nn.Buffer{Name: "model." + b.Name, Shape: b.Shape, Value: b.Value})
	}
	for _, slot := range optimizer.State() {
		s.all = append(s.all, nn.Buffer{Name: "optimizer." + slot.Name, Shape: slot.Shape, Value: slot.Value})
	}
	var err error
	s.dir, err = checkpoint.Open(path, checkpoint.Options{Run: "custom", Attempt: attempt(), Keep: checkpoint.Policy{Last: 3}})
	return s, err
}

// save writes a checkpoint of a step. If rank 0 fails, all ranks get an error.
func (s *saver) save(ctx context.Context, step int64) error {
	if s.dir == nil {
		return nil
	}
	_, err := mpi.FromRoot(ctx, s.comm, 0, func() (checkpoint.Info, error) {
		state := &checkpoint.State{Step: step, World: s.comm.Size()}
		for _, a := range s.all {
			state.Tensors = append(state.Tensors, checkpoint.Float32Tensor(a.Name, a.Shape, a.Value))
		}
		return s.dir.Save(ctx, state)
	})
	return err
}

// restore loads the newest complete checkpoint on all ranks and returns its step, or 0 if there is no checkpoint.
func (s *saver) restore(ctx context.Context) (int64, error) {
	if s.dir == nil {
		return 0, nil
	}
	step, err := mpi.FromRoot(ctx, s.comm, 0, func() (int64, error) { return s.read(ctx) })
	if err != nil || step == 0 {
		return 0, err
	}
	var values [][]float32
	for _, a := range s.all {
		values = append(values, a.Value)
	}
	return step, mpi.BroadcastMany(ctx, s.comm, values, 0)
}

// read restores the state on this rank.
func (s *saver) read(ctx context.Context) (int64, error) {
	state, _, err := s.dir.Latest(ctx)
	if errors.Is(err, checkpoint.ErrNone) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	tensors := map[string]checkpoint.Tensor{}
	for _, t := range state.Tensors {
		tensors[t.Name] = t
	}
	for _, a := range s.all {
		t, there := tensors[a.Name]
		if !there || !slices.Equal(t.Shape, a.Shape) {
			return 0, fmt.Errorf("the checkpoint of step %d is of a different model: it has no %s of shape %v", state.Step, a.Name, a.Shape)
		}
		if err := t.Float32s(a.Value); err != nil {
			return 0, err
		}
	}
	return state.Step, nil
}

// stopped holds a signal once this rank has got TERM, which Slurm sends at a preemption and at a cancel, or Ctrl-C. See main.
var stopped = make(chan os.Signal, 1)

// stopRequested reports whether this rank is asked to save and stop: by a signal, or by the file that ddpbatch creates when the job is
// about to end.
func stopRequested() bool {
	if len(stopped) > 0 {
		return true
	}
	path := os.Getenv("DDPBATCH_STOP_FILE")
	if path == "" {
		return false
	}
	_, err := os.Stat(path)
	return err == nil
}

// attempt returns the number of the job's attempt, or 0 if ddpbatch has not started this program.
func attempt() int {
	n, err := strconv.Atoi(os.Getenv("DDPBATCH_ATTEMPT"))
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// report writes how far training has come to the file that `ddpbatch status` reads. Only rank 0 calls it.
func report(step, steps int64, loss float64) error {
	path := os.Getenv("DDPBATCH_METRICS_FILE")
	if path == "" {
		return nil
	}
	line, err := json.Marshal(map[string]any{
		"step": step, "steps": steps, "loss": loss, "time": time.Now().UTC().Format(time.RFC3339Nano), "attempt": attempt(),
	})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
