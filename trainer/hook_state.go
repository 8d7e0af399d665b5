package trainer

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"ddpbatch/checkpoint"
	"ddpbatch/trainer/ddp"
	"ddpbatch/trainer/internal/vec"
)

// hookState returns what the communication hook keeps on this replica.
func (t *trainer) hookState() []ddp.State {
	if t.hook == nil {
		return nil
	}
	return t.hook.State()
}

// hookOwner returns who saves what a hook keeps: this replica, or all of its stages together if it is of the whole model. A stage without
// parameters has never used the hook.
func (t *trainer) hookOwner(s ddp.State) owner {
	switch {
	case !s.Whole || t.topology.pipelineGroup == nil:
		return ownedHere
	case len(t.params) == 0:
		return ownedElsewhere
	}
	return ownedByAll
}

func (t *trainer) copyHookState() {
	for _, s := range t.hookState() {
		copy(t.hookCopies[s.Name], s.Value)
	}
}

// hookBytes returns the memory of the copies that copyHookState makes.
func (t *trainer) hookBytes() (n int64) {
	for _, c := range t.hookCopies {
		n += 4 * int64(len(c))
	}
	return n
}

const hookPrefix = "ddp."

// hookName returns the checkpoint's name of what a communication hook keeps on one replica.
func hookName(replica int, name string) string {
	return hookPrefix + strconv.Itoa(replica) + "." + name
}

// parseHookName is the inverse of hookName.
func parseHookName(s string) (replica int, name string, ok bool) {
	s, ok = strings.CutPrefix(s, hookPrefix)
	if !ok {
		return 0, "", false
	}
	number, name, _ := strings.Cut(s, ".")
	replica, err := strconv.Atoi(number)
	return replica, name, err == nil && replica >= 0 && replica < maxRanks
}

// readResiduals distributes what communication hooks have kept on each replica if the number of replicas has changed: each new replica gets
// the mean of what the old ones had, so that nothing that was not sent yet is lost. What was the same on all, such as a count of steps,
// stays.
func (t *trainer) readResiduals(ctx context.Context, c *checkpoint.Checkpoint, saved tensors) error {
	replicas := saved.replicas()
	for _, own := range t.hookState() {
		one, count := make([]float32, len(own.Value)), 0
		for replica := range replicas {
			name := hookName(replica, own.Name)
			if there, ok := saved[name]; !ok || there.DType != "float32" || !slices.Equal(there.Shape, own.Shape) {
				continue
			}
			if err := c.Read(ctx, []checkpoint.Target{{Name: name, Data: bytesOf(one)}}); err != nil {
				return err
			}
			if count == 0 {
				clear(own.Value)
			}
			vec.Add(own.Value, one)
			count++
		}
		for i, v := range own.Value { // divide, because what is the same on all replicas must stay so
			own.Value[i] = float32(float64(v) / float64(max(1, count)))
		}
	}
	return nil
}

// replicas returns from how many replicas a checkpoint holds the hooks' state.
func (s tensors) replicas() int {
	n := 0
	for name := range s {
		if replica, _, ok := parseHookName(name); ok {
			n = max(n, replica+1)
		}
	}
	return n
}
