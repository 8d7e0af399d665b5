package trainer

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/distributed"
	"ddpbatch/internal/testkit"
)

// Each checkpoint is reported once, in the first line of metrics after it. The last checkpoint has a line of its own.
func TestMetricsReportEachSaveOnce(t *testing.T) {
	c := newCheckpoints()
	var lines bytes.Buffer
	mustTrain(t, 2, small(2, 2, 12), func(_ int, _ *Config, env *Env) {
		env.Checkpoints, env.FS, env.EverySteps, env.Metrics = c.open(t), c.fs, 7, &lines
	})
	bytes := map[int64]int64{} // the sizes that ckpt ls shows, by step
	list, err := c.open(t).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range list {
		bytes[info.Step] = info.Bytes
	}
	var saves []int64
	for decoder := json.NewDecoder(&lines); decoder.More(); {
		var line metrics
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if line.SaveS == nil {
			continue
		}
		saves = append(saves, line.Step)
		if newest := max(line.Step/7*7, line.Step/24*24); *line.SaveBytes != bytes[newest] && *line.SaveBytes != bytes[21] {
			t.Errorf("step %d: %d bytes were saved, the checkpoint of step %d has %d", line.Step, *line.SaveBytes, newest, bytes[newest])
		}
		// Copying takes no time if nothing is copied. The other phases follow one another within the save.
		if *line.SaveCopyS < 0 || *line.SaveWaitS < 0 || min(*line.SaveWriteS, *line.SaveSyncS, *line.SaveCommitS) <= 0 ||
			*line.SaveEncodeS+*line.SaveWriteS+*line.SaveSyncS+*line.SaveCommitS > 2*(*line.SaveS) { // each is the slowest rank's
			t.Errorf("step %d: phases of %+v", line.Step, line)
		}
		if *line.SaveS <= 0 || *line.SaveStallS < *line.SaveS/2 { // a synchronous save stalls training for almost all its time
			t.Errorf("step %d: a save of %v s, in %v s of which training stood still", line.Step, *line.SaveS, *line.SaveStallS)
		}
		// 32 parameters with their momentum are 256 bytes, and do not get smaller.
		// Each shard adds its header, table and end, and the checkpoint adds its manifest.
		if *line.SaveBytes < 256 || *line.SaveBytes > 8192 || *line.SaveRatio != float64(*line.SaveBytes)/256 {
			t.Errorf("step %d: %d bytes, %v of the state's", line.Step, *line.SaveBytes, *line.SaveRatio)
		}
	}
	if got := c.steps(t); !slices.Equal(got, []int64{7, 14, 21, 24}) {
		t.Fatalf("checkpoints of steps %v", got)
	}
	if !slices.Equal(saves, []int64{10, 20, 24, 24}) { // there are lines every ten steps and at the ends of epochs
		t.Errorf("reported in lines of steps %v, want 10, 20, 24 and 24", saves)
	}
}

// All lines of a step have the same loss, the mean over the steps since the line of an earlier step. This includes the line of the last
// checkpoint, which follows the last step's line. The mean over the whole epoch is in another field.
func TestEachStepHasOneLoss(t *testing.T) {
	c := newCheckpoints()
	var lines bytes.Buffer
	losses := []float64{} // of each step
	mustTrain(t, 2, small(2, 2, 12), func(rank int, _ *Config, env *Env) {
		env.Checkpoints, env.FS, env.EverySteps = c.open(t), c.fs, 7
		if rank == 0 {
			env.Metrics, env.onStep = &lines, func(p stepDone) { losses = append(losses, p.loss) }
		}
	})
	mean := func(from, to int64) float64 { // the mean loss of the steps from+1 to to
		sum := 0.0
		for _, loss := range losses[from:to] {
			sum += loss
		}
		return sum / float64(to-from)
	}
	began := map[int64]int64{10: 0, 12: 10, 20: 12, 24: 20} // the step of the line before, by the step of a line
	twice := 0
	for decoder, before := json.NewDecoder(&lines), int64(0); decoder.More(); {
		var line metrics
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if want := mean(began[line.Step], line.Step); line.Loss == nil || *line.Loss != want {
			t.Errorf("step %d: loss %v, want %v", line.Step, line.Loss, want)
		}
		if over := line.Step%12 == 0; over != (line.EpochLoss != nil) {
			t.Errorf("step %d: the epoch is over: %v; its loss is told: %v", line.Step, over, !over)
		} else if over && *line.EpochLoss != mean(line.Step-12, line.Step) {
			t.Errorf("step %d: the epoch's loss is %v, want %v", line.Step, *line.EpochLoss, mean(line.Step-12, line.Step))
		}
		if line.Step == before {
			twice++
		}
		before = line.Step
	}
	if twice != 1 {
		t.Errorf("%d steps have two lines, want the last step, whose checkpoint has one", twice)
	}
}

// A resumed run reports how long it took to find and to load the checkpoint,
// in a line of its output and in its first line of metrics.
func TestAResumeIsReported(t *testing.T) {
	c := newCheckpoints()
	cfg := small(2, 2, 12)
	mustTrain(t, 2, cfg, func(_ int, _ *Config, env *Env) { env.Checkpoints, env.FS = c.open(t), c.fs })
	list, err := c.open(t).List(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%v, error %v", list, err)
	}
	cfg.Epochs = 4
	var lines, out bytes.Buffer
	mustTrain(t, 2, cfg, func(rank int, _ *Config, env *Env) {
		env.Checkpoints, env.FS, env.Resume, env.Metrics = c.open(t), c.fs, true, &lines
		if rank == 0 {
			env.Out = &out
		}
	})
	count := 0
	for decoder := json.NewDecoder(&lines); decoder.More(); count++ {
		var line metrics
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if count > 0 {
			if line.ResumeStep != nil || line.ResumeFindS != nil || line.ResumeLoadS != nil || line.ResumeBytes != nil {
				t.Errorf("reported again in the line of step %d: %+v", line.Step, line)
			}
			continue
		}
		if line.ResumeStep == nil || line.ResumeFindS == nil || line.ResumeLoadS == nil || line.ResumeBytes == nil {
			t.Fatalf("the first line is %+v, want one that reports the resume", line)
		}
		if *line.ResumeStep != list[0].Step {
			t.Errorf("it goes on after step %d, and the checkpoint is of step %d", *line.ResumeStep, list[0].Step)
		}
		if *line.ResumeFindS <= 0 || *line.ResumeLoadS <= 0 || *line.ResumeBytes != list[0].Bytes {
			t.Errorf("found in %v s, loaded in %v s, %d bytes; the checkpoint has %d", *line.ResumeFindS, *line.ResumeLoadS,
				*line.ResumeBytes, list[0].Bytes)
		}
	}
	if count < 3 {
		t.Errorf("%d lines of metrics", count)
	}
	want := regexp.MustCompile(`(?m)^rank 0 \| going on after step 24: ` + list[0].Path +
		` \| found in [0-9.]+(µs|ms|s), [0-9.]+ (bytes|KiB) loaded in [0-9.]+(µs|ms|s)$`)
	if !want.MatchString(out.String()) {
		t.Errorf("no line %s in:\n%s", want, out.String())
	}
}

// The figures of a save in a line of metrics belong to that save, even if later saves have begun since.
func TestStallOfALineIsOfItsSave(t *testing.T) {
	var c saveCost
	at := time.Unix(0, 0)
	for step := int64(1); step <= 100; step++ {
		c.add(step, at, at.Add(time.Duration(step)*time.Second), distributed.Stats{Copy: time.Duration(step)})
	}
	for step, want := range map[int64]time.Duration{100: 100 * time.Second, 98: 98 * time.Second, 3: 0, 101: 0} {
		if got := c.of(step); got.took != want || got.copied != want/time.Second {
			t.Errorf("the save of step %d took %+v, want %v", step, got, want)
		}
	}
	if c.add(98, at, at.Add(time.Second), distributed.Stats{}); c.of(98).took != time.Second {
		t.Errorf("saved again, step 98 took %v, want 1 s", c.of(98))
	}
}

// A background save stalls training only a little, but the advised interval is never shorter than a whole save.
func TestAdvisedInterval(t *testing.T) {
	const day = 24 * time.Hour
	for _, row := range []struct{ stall, total, want time.Duration }{
		{day / 20_000, day / 10_000, day / 100}, // the root of 2 / 20,000 is 1 / 100
		{day / 20_000, day / 10, day / 10},
	} {
		if got := advisedInterval(row.stall, row.total); (got - row.want).Abs() > time.Microsecond {
			t.Errorf("a stall of %v in a save of %v: one every %v, want %v", row.stall, row.total, got, row.want)
		}
	}
}

// costLine matches the line in which a run of 24 steps reports the cost of its saves at its end, by the number of steps between saves.
var costLine = map[int]*regexp.Regexp{
	1: regexp.MustCompile(`^rank 0 \| checkpoints \| 24 saved \| the newest \S+ (KiB|bytes)` +
		` \| training waited \S+s, \d+\.\d % of the time \| saved every \S+s` +
		` \| with a failure a day, one every \S+s loses least \| on mem, of which \S+ .iB were free before$`),
	100: regexp.MustCompile(`^rank 0 \| checkpoints \| 1 saved \| the newest \S+ (KiB|bytes)` +
		` \| training waited \S+s, \d+\.\d % of the time` +
		` \| with a failure a day, one every \S+s loses least \| on mem, of which \S+ .iB were free before$`),
}

// The report of saves leaves out figures that would only be noise.
func TestReportOfSavesLeavesOutNoise(t *testing.T) {
	begin := time.Unix(0, 0)
	of := func(saves int, stall time.Duration) *saveCost {
		var c saveCost
		for i := range saves {
			at := begin.Add(time.Duration(i) * time.Minute)
			c.add(int64(i), at, at.Add(stall), distributed.Stats{})
		}
		return &c
	}
	for _, row := range []struct {
		cost  *saveCost
		stats distributed.Stats
		all   time.Duration
		space checkpoint.Space
		want  string
	}{
		{of(3, 50*time.Millisecond),
			distributed.Stats{Saves: 3, Stored: 3 << 20, Raw: 4 << 20, Total: distributed.Times{P95: time.Second}},
			5 * time.Minute, checkpoint.Space{Total: 2 << 30, Free: 1 << 30, Type: "ext4"},
			// A save stalls for 50 ms and a day has 86,400 s, so the interval is the root of 2 * 0.05 * 86,400 = 8,640, 92.95 s.
			"3 saved | the newest 3 MiB, 0.75 of its arrays | training waited 150ms, 0.1 % of the time" +
				" | saved every 1m0s | with a failure a day, one every 1m33s loses least | on ext4, of which 1 GiB were free before"},
		{of(1, 20*time.Microsecond), distributed.Stats{Saves: 1, Stored: 1024, Raw: 20}, 0, checkpoint.Space{},
			"1 saved | the newest 1 KiB | training waited 20µs"},
	} {
		if got := row.cost.report(row.stats, row.all, row.space); got != "rank 0 | checkpoints | "+row.want {
			t.Errorf("got  %s\nwant %s", got, row.want)
		}
	}
}

// A run that saves nothing does not report saves.
func TestRunWithoutSavesReportsNone(t *testing.T) {
	var out bytes.Buffer
	mustTrain(t, 2, small(2, 2, 12), func(rank int, _ *Config, env *Env) {
		if rank == 0 {
			env.Out = &out
		}
	})
	if strings.Contains(out.String(), "checkpoints") || out.Len() == 0 {
		t.Error(out.String())
	}
}

func TestTimesAreShortForPeople(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1234 * time.Microsecond: "1.23ms", 412345 * time.Microsecond: "412ms", 1696 * time.Millisecond: "1.7s",
		41234 * time.Millisecond: "41s", 243 * time.Second: "4m3s",
		3*time.Hour + 25*time.Minute + 7*time.Second: "3h25m0s", 0: "0s",
	} {
		if got := timeText(d); got != want {
			t.Errorf("%d ns is %q, want %q", d, got, want)
		}
	}
}

// A run that saves too often logs one warning, and reports at its end what saving has cost.
func TestSavingTooOftenIsReportedOnce(t *testing.T) {
	for every, want := range map[int]int{1: 1, 100: 0} {
		var log testkit.Journal
		var out bytes.Buffer
		c := newCheckpoints()
		mustTrain(t, 2, small(2, 2, 12), func(rank int, _ *Config, env *Env) {
			env.Checkpoints, env.FS, env.EverySteps, env.Clock, env.Log = c.open(t), c.fs, every, ticking(), log.Logger()
			if rank == 0 {
				env.Out = &out
			}
		})
		if n := strings.Count(log.String(), "training often stands still"); n != want {
			t.Errorf("every %d steps: %d warnings, want %d:\n%s", every, n, want, log.String())
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if n := strings.Count(out.String(), "| checkpoints |"); n != 1 || !costLine[every].MatchString(lines[len(lines)-1]) {
			t.Errorf("every %d steps: %d lines of what saving has cost, want one, and that the last:\n%s", every, n, out.String())
		}
	}
}
