package trainer

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/testkit"
)

// Each checkpoint is told of once, in the first line of metrics after it, and the last one in a line of its own.
func TestMetricsOfSaves(t *testing.T) {
	c := newCheckpoints()
	var lines bytes.Buffer
	mustTrain(t, 2, small(2, 2, 12), func(_ int, _ *Config, env *Env) {
		env.Checkpoints, env.FS, env.EverySteps, env.Metrics = c.open(t), c.fs, 7, &lines
	})
	bytes := map[int64]int64{} // as ckpt ls has them
	list, err := c.open(t).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range list {
		bytes[info.Step] = info.Bytes
	}
	var told []int64
	for decoder := json.NewDecoder(&lines); decoder.More(); {
		var line metrics
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line.SaveS == nil {
			continue
		}
		told = append(told, line.Step)
		if newest := max(line.Step/7*7, line.Step/24*24); *line.SaveBytes != bytes[newest] && *line.SaveBytes != bytes[21] {
			t.Errorf("step %d: %d bytes were saved, the checkpoint of step %d has %d", line.Step, *line.SaveBytes, newest, bytes[newest])
		}
		if *line.SaveS <= 0 || *line.SaveStallS < *line.SaveS/2 { // synchronous: all of it, but for a moment
			t.Errorf("step %d: a save of %v s, in %v s of which training stood still", line.Step, *line.SaveS, *line.SaveStallS)
		}
		// 32 parameters with their momentum are 256 bytes, and do not get smaller; a shard has its header, table and end, and there is the manifest.
		if *line.SaveBytes < 256 || *line.SaveBytes > 8192 || *line.SaveRatio != float64(*line.SaveBytes)/256 {
			t.Errorf("step %d: %d bytes, %v of the state's", line.Step, *line.SaveBytes, *line.SaveRatio)
		}
	}
	if got := c.steps(t); !slices.Equal(got, []int64{7, 14, 21, 24}) {
		t.Fatalf("checkpoints of steps %v", got)
	}
	if !slices.Equal(told, []int64{10, 20, 24, 24}) { // there are lines every ten steps, and at the ends of epochs
		t.Errorf("told of in lines of steps %v, want 10, 20, 24 and 24", told)
	}
}

// What a line tells of a save is of that save, whatever has been begun since.
func TestTheStallOfAStep(t *testing.T) {
	var c saveCost
	at := time.Unix(0, 0)
	for step := int64(1); step <= 100; step++ {
		c.add(step, at, at.Add(time.Duration(step)*time.Second))
	}
	for step, want := range map[int64]time.Duration{100: 100 * time.Second, 98: 98 * time.Second, 3: 0, 101: 0} {
		if got := c.of(step); got != want {
			t.Errorf("the save of step %d took %v, want %v", step, got, want)
		}
	}
	if c.add(98, at, at.Add(time.Second)); c.of(98) != time.Second {
		t.Errorf("saved again, step 98 took %v, want 1 s", c.of(98))
	}
}

// Whoever saves too often is told so, once; and at the end what saving has cost.
func TestSavingTooOften(t *testing.T) {
	for every, want := range map[int]int{1: 1, 100: 0} {
		var log testkit.Journal
		c := newCheckpoints()
		mustTrain(t, 2, small(2, 2, 12), func(rank int, _ *Config, env *Env) {
			env.Checkpoints, env.FS, env.EverySteps, env.Clock, env.Log = c.open(t), c.fs, every, ticking(), log.Logger()
		})
		if n := strings.Count(log.String(), "training often stands still"); n != want {
			t.Errorf("every %d steps: %d warnings, want %d:\n%s", every, n, want, log.String())
		}
		if n := strings.Count(log.String(), "msg=checkpoints saves="); n != 1 {
			t.Errorf("every %d steps: %d lines of what saving has cost, want one:\n%s", every, n, log.String())
		}
	}
}
