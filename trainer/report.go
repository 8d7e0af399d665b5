package trainer

import (
	"fmt"
	"strings"
	"time"

	"ddpbatch/trainer/ddp"
)

// meter adds up measurements of steps.
type meter struct {
	steps, rows int
	loss        float64
	time        time.Duration // of the steps
	comm        time.Duration // of collectives, even while the rank computes
	exposed     time.Duration // the part of comm in which the rank did nothing else
}

func (m *meter) add(loss float64, rows int, took, comm, exposed time.Duration) {
	m.steps++
	m.rows += rows
	m.loss += loss
	m.time += took
	m.comm += comm
	m.exposed += exposed
}

func (m *meter) samplesPerS() float64 {
	if m.time <= 0 {
		return 0
	}
	return float64(m.rows) / m.time.Seconds()
}

// commShare returns the share of the time in which the rank only communicated.
func (m *meter) commShare() float64 {
	if m.time <= 0 {
		return 0
	}
	return float64(m.exposed) / float64(m.time)
}

// overlap returns the share of the communication that took place while gradients were computed.
func (m *meter) overlap() float64 {
	return ddp.Stats{Communication: m.comm, Exposed: m.exposed}.Overlap()
}

// announceEpoch prints what this rank is about to do, unless only the epoch's end is left.
func (t *trainer) announceEpoch() {
	t.epoch, t.printedAt = meter{}, t.now()
	if t.stepsLeft() == 0 {
		return
	}
	t.print("rank %d | epoch %d | batch size %d | steps %d\n",
		t.env.Comm.Rank(), t.at.Epoch, t.cfg.BatchSize, t.at.Done+t.stepsLeft())
}

// print writes one line in one Write. An error is ignored: a lost line, for example because the reader has gone, must not
// end a run.
func (t *trainer) print(format string, args ...any) {
	_, _ = fmt.Fprintf(t.env.Out, format, args...)
}

// measure records one step of all ranks, or, if alone, of this one.
func (t *trainer) measure(loss float64, rows int, took time.Duration, alone bool) {
	if t.env.Comm.Rank() != 0 || !finite(loss) {
		return
	}
	var s ddp.Stats
	if !alone {
		s = t.ddp.Stats()
	}
	t.pace.add(took)
	t.sinceMetrics.add(loss, rows, took, s.Communication, s.Exposed)
	t.epoch.add(loss, rows, took, s.Communication, s.Exposed)
	if t.at.Step%metricsEvery == 0 && t.stepsLeft() > 0 {
		t.writeMetrics(evaluation{})
	}
	if t.env.onStep != nil {
		t.env.onStep(stepDone{t.at.Step, t.totalSteps(), t.at.Epoch, loss})
	}
	if t.env.Every > 0 && t.now().Sub(t.printedAt) >= t.env.Every && t.stepsLeft() > 0 {
		t.reportStep()
	}
}

// progress reports a step of this rank to Env.Progress.
func (t *trainer) progress(took time.Duration, alone bool) {
	if t.env.Progress == nil {
		return
	}
	comm := time.Duration(0)
	if !alone {
		comm = t.ddp.Stats().Exposed
	}
	t.spent.Input += t.inputTime
	t.spent.Comm += comm
	t.spent.Compute += max(0, took-t.inputTime-comm)
	t.env.Progress(t.at.Step, t.spent)
}

// alive calls Env.Alive.
func (t *trainer) alive() {
	if t.env.Alive != nil {
		t.env.Alive()
	}
}

// measureAverage records the time that averaging the parameters has taken.
func (t *trainer) measureAverage(took time.Duration) {
	for _, m := range []*meter{&t.sinceMetrics, &t.epoch} {
		m.time += took
		m.comm += took
		m.exposed += took
	}
}

// reportStep prints, on rank 0, the progress in the middle of an epoch.
func (t *trainer) reportStep() {
	t.printedAt = t.now()
	e := &t.epoch
	t.print("rank 0 | epoch %d | step %d of %d | loss %.4f | samples/s %.0f | communication %.1f %% | overlap %.0f %% | %s left\n",
		t.at.Epoch, t.at.Step, t.totalSteps(), e.loss/float64(e.steps), e.samplesPerS(), 100*e.commShare(),
		100*e.overlap(), round(t.timeLeft()))
}

// timeLeft returns how long the remaining steps will take, at this epoch's rate.
func (t *trainer) timeLeft() time.Duration {
	if t.epoch.steps == 0 {
		return 0
	}
	return time.Duration(float64(t.totalSteps()-t.at.Step) * float64(t.epoch.time) / float64(t.epoch.steps))
}

// round rounds a time to a precision that suits a person who waits.
func round(d time.Duration) time.Duration {
	if d > time.Hour {
		return d.Round(time.Minute)
	}
	return d.Round(time.Second)
}

// reportEpoch prints, on rank 0, the results of the epoch.
func (t *trainer) reportEpoch() {
	if t.env.Comm.Rank() != 0 {
		return
	}
	var line strings.Builder
	fmt.Fprintf(&line, "rank 0 | epoch %d | loss %.4f", t.at.Epoch, t.at.loss())
	if t.epoch.steps > 0 { // 0 if a checkpoint of the epoch's last step was resumed from
		fmt.Fprintf(&line, " | samples/s %.0f", t.epoch.samplesPerS())
	}
	if t.env.Comm.Size() > 1 && t.epoch.steps > 0 {
		fmt.Fprintf(&line, " | communication %.1f %% | overlap %.0f %%", 100*t.epoch.commShare(), 100*t.epoch.overlap())
	}
	if e := t.evaluation; e.done && e.step == t.at.Step {
		fmt.Fprintf(&line, " | eval loss %.4f", e.loss)
		if t.eval.Spec().Classes > 0 {
			fmt.Fprintf(&line, " | accuracy %.2f %%", 100*e.accuracy)
		}
	}
	t.print("%s\n", line.String())
	t.writeMetrics(evaluation{})
}
