package mpi

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/element"
	"ddpbatch/mpi/internal/engine"
	"ddpbatch/mpi/internal/model"
)

// discover is the first that the ranks of a world do together: they tell each other on which machine they are, and measure what
// messages cost.
func (k *core) discover(ctx context.Context, near []int) error {
	w, rank := k.world, k.group.Rank()
	lowest := rank
	if len(near) > 0 {
		lowest = min(rank, slices.Min(near))
	}
	all, err := k.allGatherBytes(ctx, binary.LittleEndian.AppendUint32(nil, uint32(lowest)))
	if err != nil {
		return err
	}
	w.machines = make([]int, len(all))
	for i, block := range all {
		w.machines[i] = int(binary.LittleEndian.Uint32(block))
	}
	return k.measure(ctx)
}

// measure fits the model of what messages cost: rank 0 times its links to one rank of its own machine and to one of
// another, and all ranks take its numbers, as they have to come to the same choices.
func (k *core) measure(ctx context.Context) error {
	// What is measured here is not yet what this rank chooses by: the gather below is to be the same on all ranks.
	nearby, afar := k.partners()
	near, err := k.timeLink(ctx, nearby, defaultMachine)
	if err != nil {
		return err
	}
	far, err := k.timeLink(ctx, afar, defaultMachine)
	if err != nil {
		return err
	}
	if afar < 0 {
		far = near
	}
	if k.group.Rank() == 0 {
		near.Gamma = timeReduction()
		far.Gamma = near.Gamma
	}
	all, err := k.allGatherBytes(ctx, encodeMachines(near, far))
	if err != nil {
		return err
	}
	k.world.near, k.world.far = decodeMachines(all[0])
	return nil
}

// partners are the ranks that rank 0 times messages with; -1: none.
func (k *core) partners() (near, far int) {
	near, far = -1, -1
	for rank, machine := range k.world.machines {
		switch {
		case rank == 0:
		case machine == k.world.machines[0] && near < 0:
			near = rank
		case machine != k.world.machines[0]:
			far = rank
		}
	}
	return near, far
}

// timeLink fits the cost of messages between rank 0 and its partner, on these two; others have nothing to do.
func (k *core) timeLink(ctx context.Context, partner int, guess algorithm.Machine) (algorithm.Machine, error) {
	rank := k.group.Rank()
	if partner < 0 || rank != 0 && rank != partner {
		return guess, nil
	}
	var samples []model.Sample
	buf := make([]byte, slices.Max(probes[:]))
	for _, n := range probes {
		for range rounds {
			start := time.Now()
			if err := k.pingPong(ctx, partner, buf[:n]); err != nil {
				return guess, err
			}
			samples = append(samples, model.Sample{Bytes: n, Seconds: time.Since(start).Seconds() / 2})
		}
	}
	if m, ok := model.Fit(samples); ok {
		return m, nil
	}
	return guess, nil // times that make no sense are no reason to fail
}

// pingPong sends buf from rank 0 to its partner and back.
func (k *core) pingPong(ctx context.Context, partner int, buf []byte) error {
	var op engine.Op
	label := engine.Call{Collective: uint8(messageCall)}
	send := func(to int) error {
		k.group.SendMessage(&op, to, label, buf)
		return k.group.Wait(ctx, &op)
	}
	receive := func(from int) error {
		k.group.RecvMessage(&op, from, label, buf)
		return k.group.Wait(ctx, &op)
	}
	if k.group.Rank() != 0 {
		if err := receive(0); err != nil {
			return err
		}
		return send(0)
	}
	if err := send(partner); err != nil {
		return err
	}
	return receive(partner)
}

// timeReduction is the seconds that a byte of float32 takes to be summed, in memory that fits a core's cache.
func timeReduction() float64 {
	const size = 64 << 10
	kernel, err := element.KernelOf(element.Float32, element.Sum)
	if err != nil {
		return defaultMachine.Gamma
	}
	words := make([]uint64, 2*size/8)
	a, b := bytesOf(words[:size/8]), bytesOf(words[size/8:])
	best := math.Inf(1)
	for range rounds {
		start := time.Now()
		kernel(a, a, b)
		best = min(best, time.Since(start).Seconds()/size)
	}
	return best
}

// defaultMachine is a guess, of a common network, for links that could not be measured.
var defaultMachine = algorithm.Machine{Alpha: 10e-6, Beta: 0.3e-9, Gamma: 0.1e-9}

// probes are the lengths, in bytes, that messages are timed with, and rounds how often.
var probes = [...]int{8, 4 << 10, 256 << 10}

const rounds = 5

func encodeMachines(machines ...algorithm.Machine) []byte {
	var b []byte
	for _, m := range machines {
		for _, x := range [...]float64{m.Alpha, m.Beta, m.Gamma} {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(x))
		}
	}
	return b
}

// decodeMachines takes nothing from rank 0 that would make the choice depend on more than numbers.
func decodeMachines(b []byte) (near, far algorithm.Machine) {
	var x [6]float64
	for i := range x {
		x[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
		if !(x[i] >= 0 && x[i] < 1e3) {
			return defaultMachine, defaultMachine
		}
	}
	return algorithm.Machine{Alpha: x[0], Beta: x[1], Gamma: x[2]}, algorithm.Machine{Alpha: x[3], Beta: x[4], Gamma: x[5]}
}

// allGatherBytes gathers a few bytes of every rank, the same number of each.
func (k *core) allGatherBytes(ctx context.Context, own []byte) ([][]byte, error) {
	size, rank := k.port.Size(), k.port.Rank()
	out := make([]byte, size*len(own))
	copy(out[rank*len(own):], own)
	o := operation{
		kind: setupCall, data: element.Uint8, count: uint64(len(out)), out: out, outBlocks: blocks{cut: true, even: len(own)},
	}
	if err := k.execute(ctx, &o); err != nil {
		return nil, err
	}
	all := make([][]byte, size)
	for i := range all {
		all[i] = out[i*len(own):][:len(own)]
	}
	return all, nil
}
