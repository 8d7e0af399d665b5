package mpi

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"ddpbatch/mpi/internal/algorithm"
	"ddpbatch/mpi/internal/element"
	"ddpbatch/mpi/internal/model"
)

// discover runs first when the ranks of a world set up their Comm. They tell each other on which machine they are, and measure the cost of
// messages.
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

// measure measures the cost of messages. Rank 0 times its links to one rank of its own machine and to one of another. All ranks use its
// numbers, because they must make the same choices. Ranks in one process have no links to time, and keep the guess.
func (k *core) measure(ctx context.Context) error {
	if k.world.sockets == nil {
		return nil
	}
	// The results do not go to k.world yet, because the gather below must use the same costs on all ranks.
	near, far := model.Uniform(defaultMachine), model.Uniform(defaultMachine)
	nearby, afar := k.partners()
	if rank := k.group.Rank(); rank == 0 || rank == nearby || rank == afar {
		p := newProber(k, unix.Mmap)
		defer p.close()
		for _, link := range []struct {
			partner int
			costs   *model.Costs
		}{{nearby, &near}, {afar, &far}} {
			if link.partner < 0 || rank != 0 && rank != link.partner {
				continue
			}
			if err := p.timeLink(ctx, link.partner, link.costs); err != nil {
				return fmt.Errorf("time messages: %w", err)
			}
		}
		if rank == 0 {
			if afar >= 0 && !k.world.sockets.UsesUCX() {
				far.Exchange[longest] *= wholeMessage
			}
			near.Reduction = p.timeReductions()
			far.Reduction = near.Reduction
		}
	}
	if afar < 0 {
		far = near
	}
	all, err := k.allGatherBytes(ctx, encodeCosts(&near, &far))
	if err != nil {
		return err
	}
	k.world.near, k.world.far = decodeCosts(all[0])
	return nil
}

// partners returns the ranks with which rank 0 times messages; -1 stands for none.
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

// defaultMachine is a guess for links that were not measured. It fits a common network.
var defaultMachine = algorithm.Machine{Alpha: 10e-6, Beta: 0.3e-9, Gamma: 0.1e-9}

// encodeCosts encodes each time in four bytes. All ranks gather them, and use those of rank 0.
func encodeCosts(costs ...*model.Costs) []byte {
	var b []byte
	for _, c := range costs {
		for _, t := range [...]*model.Times{&c.Message, &c.Exchange, &c.Reduction} {
			for _, x := range t {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(x)))
			}
		}
	}
	return b
}

// decodeCosts decodes rank 0's times. It replaces unusable ones by the guess, so that they cannot affect more than the choice.
func decodeCosts(b []byte) (near, far model.Costs) {
	for _, c := range [...]*model.Costs{&near, &far} {
		for _, t := range [...]*model.Times{&c.Message, &c.Exchange, &c.Reduction} {
			for i := range t {
				t[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
				b = b[4:]
			}
		}
		if !c.Usable() { // not a reason to fail
			*c = model.Uniform(defaultMachine)
		}
	}
	return near, far
}

// allGatherBytes gathers a few bytes of every rank, the same number from each.
func (k *core) allGatherBytes(ctx context.Context, own []byte) ([][]byte, error) {
	size := k.port.Size()
	out := make([]byte, size*len(own))
	o := operation{
		kind: setupCall, data: element.Uint8, count: uint64(len(out)), out: out, in: own, outBlocks: blocks{cut: true, even: len(own)},
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
