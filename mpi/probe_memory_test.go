package mpi

import (
	"testing"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/testkit"
	"ddpbatch/mpi/internal/model"
)

// Messages are timed even if the system refuses the memory on one rank or on both.
func TestMessagesAreTimedInLittleMemory(t *testing.T) {
	refuse := func(int, int64, int, int, int) ([]byte, error) { return nil, unix.ENOMEM }
	for name, mmaps := range map[string][2]mmapFunc{
		"asks": {refuse, unix.Mmap}, "answers": {unix.Mmap, refuse}, "both": {refuse, refuse},
	} {
		t.Run(name, func(t *testing.T) {
			comms := newWorldOn(t, "local", 2, nil)
			var costs model.Costs
			must(t, testkit.Each(2, func(rank int) error {
				p := newProber(comms[rank].core, mmaps[rank])
				defer p.close()
				if err := p.timeLink(t.Context(), 1, &costs); err != nil {
					return err
				}
				// The lengths include those that the other rank may have left out.
				for i := range model.Lengths {
					p.touch(i)
					for range 2 * pieces {
						if out, in := p.buffers(i); len(out) != lengthOf(i) || len(in) != lengthOf(i) || overlap(out, in) {
							t.Errorf("rank %d: buffers of %d and %d bytes, want %d", rank, len(out), len(in), lengthOf(i))
						}
					}
				}
				if rank == 0 {
					costs.Reduction = p.timeReductions()
				}
				return nil
			}))
			if !costs.Usable() {
				t.Errorf("the costs are %+v", costs)
			}
		})
	}
}
