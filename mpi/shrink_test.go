package mpi

import (
	"testing"

	"ddpbatch/mpi/internal/engine"
)

// The decision on the survivors comes from another process. If it does not name this rank as a survivor, Shrink returns an error, whatever
// else the decision says.
func TestShrinkWithoutThisRankIsAnError(t *testing.T) {
	for _, over := range transports {
		for self, says := range map[string]byte{"left out": 0, "nonsense": 2} {
			t.Run(over+"/"+self, func(t *testing.T) {
				w := newWorldOn(t, over, 3, nil)
				k := w[1].core
				group, err := k.world.engine.LenientGroup(childID(k.group.ID(), 0, shrinkMark), k.members)
				if err != nil {
					t.Fatal(err)
				}
				group.SendMessage(new(engine.Op), 0, surveyLabel(surveyTag), []byte{byte(surveyDecision), says, 1, 1})
				if c, err := w[0].Shrink(t.Context()); err == nil {
					t.Errorf("rank 0 is rank %d of %d survivors", c.Rank(), c.Size())
				}
			})
		}
	}
}
