package trainer

import (
	"slices"
	"strconv"
	"strings"

	"ddpbatch/trainer/internal/vec"
)

// residuals hands out what communication hooks have kept on each replica when there are other replicas now: every one gets the mean
// of what the old ones had, so that nothing is lost that was not sent yet. What was the same on all, such as a count of steps, stays.
type residuals struct {
	own   []array        // of this replica; empty where each gets its own back
	sums  map[string]int // by name without the replica: how many were added
	saved int            // replicas that the checkpoint was made with
}

// newResiduals looks at what a checkpoint holds.
func newResiduals(t *trainer, saved []array) *residuals {
	r := &residuals{sums: map[string]int{}}
	for _, a := range saved {
		if replica, _, ok := parseHookName(a.Name); ok {
			r.saved = max(r.saved, replica+1)
		}
	}
	if r.saved == t.layout.replicas {
		return r
	}
	for _, s := range t.hookState() {
		r.own = append(r.own, array{Name: s.Name, Shape: s.Shape, value: s.Value})
	}
	return r
}

// add takes note of one array of the checkpoint.
func (r *residuals) add(name string, value []float32) {
	_, name, ok := parseHookName(name)
	if !ok {
		return
	}
	at := slices.IndexFunc(r.own, func(a array) bool { return a.Name == name })
	if at < 0 || len(r.own[at].value) != len(value) {
		return
	}
	if r.sums[name] == 0 {
		clear(r.own[at].value)
	}
	vec.Add(r.own[at].value, value)
	r.sums[name]++
}

// share ends the sums as means.
func (r *residuals) share() {
	for _, a := range r.own {
		if n := float64(r.sums[a.Name]); n > 1 {
			for i, v := range a.value { // divided, as what is the same on all must stay so
				a.value[i] = float32(float64(v) / n)
			}
		}
	}
}

const hookPrefix = "ddp."

// hookName is the name of what a communication hook keeps on one replica alone.
func hookName(replica int, name string) string {
	return hookPrefix + strconv.Itoa(replica) + "." + name
}

// parseHookName is the reverse.
func parseHookName(s string) (replica int, name string, ok bool) {
	s, ok = strings.CutPrefix(s, hookPrefix)
	if !ok {
		return 0, "", false
	}
	number, name, _ := strings.Cut(s, ".")
	replica, err := strconv.Atoi(number)
	return replica, name, err == nil && replica >= 0 && replica < maxRanks
}
