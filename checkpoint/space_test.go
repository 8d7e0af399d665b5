package checkpoint

import (
	"math"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit/vfstest"
)

// The space that Room asks for is that of the checkpoints that the policy keeps and of one more, minus that of the existing
// ones that the policy will remove.
func TestRoomIsWhatThePolicyKeeps(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	keep := Policy{Last: 3, Best: 2, Metric: "loss"}
	raw := int64(0)
	for _, tensor := range testState(1, 0).Tensors {
		raw += int64(len(tensor.Data))
	}
	room := func(keep Policy, state int64, deltas bool) Room {
		t.Helper()
		r, err := attempt(t, m, 1, keep).Room(t.Context(), state, deltas)
		must(t, err)
		return r
	}
	for _, test := range []struct {
		name   string
		keep   Policy
		state  int64
		deltas bool
		want   Room
	}{
		{"empty", keep, 1000, false, Room{Each: 1000, Count: 6, Need: 6000}},
		{"deltas keep their base", keep, 1000, true, Room{Each: 1000, Count: 7, Need: 7000}},
		{"rules without a number", Policy{Last: 2, Every: 100}, 1000, false, Room{Each: 1000, Count: 3, More: true, Need: 3000}},
		{"no rule", Policy{}, 1000, false, Room{Each: 1000, Count: 2, More: true, Need: 2000}},
		{"absurd", Policy{Last: math.MaxInt}, math.MaxInt64 / 2, true,
			Room{Each: math.MaxInt64 / 2, Count: math.MaxInt, Need: math.MaxInt64}},
		{"nothing to save", keep, 0, false, Room{Count: 6}},
	} {
		if got := room(test.keep, test.state, test.deltas); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
	var there int64
	for step := int64(1); step <= 3; step++ {
		save(t, attempt(t, m, 1, Policy{}), testState(step, 0))
	}
	list, err := attempt(t, m, 1, keep).List(t.Context())
	must(t, err)
	for _, info := range list {
		there += info.Bytes
	}
	each := list[2].Bytes
	if got, want := room(keep, raw, false), (Room{Each: each, Count: 6, There: there, Need: 6*each - there}); got != want {
		t.Errorf("three are there: %+v, want %+v", got, want)
	}
	if got, want := room(keep, 10*raw, false), (Room{Each: 10 * raw, Count: 6, There: there, Need: 60*raw - there}); got != want {
		t.Errorf("three smaller ones are there: %+v, want %+v", got, want)
	}
	must(t, attempt(t, m, 1, keep).Pin(t.Context(), 3, "best")) // it stays in addition to those that the rules keep
	if got := room(keep, raw, false).There; got != there-each {
		t.Errorf("with a pinned one %d bytes go, want %d", got, there-each)
	}
	if got := room(Policy{}, raw, false); got.There != 0 || got.Need != 2*each {
		t.Errorf("where all stay: %+v", got)
	}
	if got := room(Policy{Last: 2}, raw, false); got.There != list[0].Bytes+list[1].Bytes || got.Need < each {
		t.Errorf("two to keep, three there: %+v", got)
	}
}

// Probe leaves nothing behind, and returns every fault with its class.
func TestProbeLeavesNothingAndShowsFaults(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := attempt(t, m, 1, Policy{})
	space, err := d.Probe(t.Context(), "host")
	must(t, err)
	if space.Total == 0 || space.Free > space.Total {
		t.Errorf("the space is %+v", space)
	}
	for k := 1; ; k++ {
		in := vfstest.NewInjector(m, vfstest.FailAt(k, syscall.EDQUOT))
		_, err := attempt(t, in, 1, Policy{}).Probe(t.Context(), "host-7")
		if err == nil {
			if k < 8 {
				t.Fatalf("a probe has only %d operations", k-1)
			}
			break
		}
		wantErr(t, "Probe", err, ErrNoSpace)
		if !strings.Contains(err.Error(), "host-7") {
			t.Errorf("%v does not say who", err)
		}
	}
	save(t, attempt(t, m, 2, Policy{}), testState(1, 0)) // removes what the failed probes could not remove
	for _, path := range tree(t, m) {
		if strings.Contains(path, "PROBE") {
			t.Errorf("%s stays", path)
		}
	}
}
