package trainer

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// metricsEvery is how many steps a line of metrics covers; an epoch's last may cover fewer.
const metricsEvery = 10

// meter adds up steps.
type meter struct {
	steps, rows int
	loss        float64
	time, comm  time.Duration // of the steps, and of the collectives in them
}

func (m *meter) add(loss float64, rows int, took, comm time.Duration) {
	m.steps++
	m.rows += rows
	m.loss += loss
	m.time += took
	m.comm += comm
}

func (m *meter) samplesPerS() float64 {
	if m.time <= 0 {
		return 0
	}
	return float64(m.rows) / m.time.Seconds()
}

func (m *meter) commShare() float64 {
	if m.time <= 0 {
		return 0
	}
	return float64(m.comm) / float64(m.time)
}

// announceEpoch tells what this rank is about to do, unless nothing but the epoch's end is left.
func (t *trainer) announceEpoch() {
	t.epoch = meter{}
	if t.at.Done == t.stepsPerEpoch() {
		return
	}
	t.print("rank %d | epoch %d | batch size %d | steps %d\n",
		t.env.Comm.Rank(), t.at.Epoch, t.cfg.BatchSize, t.stepsPerEpoch())
}

// print writes one line in one Write. A line that gets lost, say because nobody reads any
// more, is not worth a run.
func (t *trainer) print(format string, args ...any) {
	_, _ = fmt.Fprintf(t.env.Out, format, args...)
}

// measure takes note of one step of all ranks.
func (t *trainer) measure(loss float64, rows int, took, comm time.Duration) {
	if t.env.Comm.Rank() != 0 {
		return
	}
	t.window.add(loss, rows, took, comm)
	t.epoch.add(loss, rows, took, comm)
	if t.at.Step%metricsEvery == 0 && t.at.Done < t.stepsPerEpoch() {
		t.writeMetrics(evaluation{})
	}
	if t.env.Progress != nil {
		t.env.Progress(Progress{
			Step: t.at.Step, Steps: t.totalSteps(), Epoch: t.at.Epoch, Epochs: t.cfg.Epochs,
			Loss: loss, SamplesPerS: t.epoch.samplesPerS(), CommShare: t.epoch.commShare(),
		})
	}
}

// reportEpoch tells, on rank 0, how the epoch went.
func (t *trainer) reportEpoch() {
	if t.env.Comm.Rank() != 0 {
		return
	}
	var line strings.Builder
	fmt.Fprintf(&line, "rank 0 | epoch %d | loss %.4f | samples/s %.0f", t.at.Epoch, t.at.loss(), t.epoch.samplesPerS())
	if e := t.evaluation; e.done {
		if t.eval.Spec().Classes > 0 {
			fmt.Fprintf(&line, " | accuracy %.2f %%", 100*e.accuracy)
		} else {
			fmt.Fprintf(&line, " | eval loss %.4f", e.loss)
		}
	}
	t.print("%s\n", line.String())
	t.writeMetrics(t.evaluation)
}

// metrics is one line for programs. Times and rates are those of the steps alone, without checkpoints and
// evaluation.
type metrics struct {
	Time        string   `json:"time"` // RFC 3339, UTC
	Attempt     int      `json:"attempt"`
	Step        int64    `json:"step"`
	Steps       int64    `json:"steps"` // in the whole run
	Epoch       int      `json:"epoch"`
	Loss        float64  `json:"loss"` // mean over the steps since the line before
	LR          float64  `json:"lr"`
	SamplesPerS float64  `json:"samples_per_s"` // of all ranks together
	CommShare   float64  `json:"comm_share"`    // of the time, 0 to 1
	EvalLoss    *float64 `json:"eval_loss,omitempty"`
	Accuracy    *float64 `json:"accuracy,omitempty"` // 0 to 1; for classification
}

// writeMetrics writes, on rank 0, a line about the steps since the last one and what e says, if
// there is either.
func (t *trainer) writeMetrics(e evaluation) {
	w := t.window
	t.window = meter{}
	if t.env.Metrics == nil || t.env.Comm.Rank() != 0 || w.steps == 0 && !e.done {
		return
	}
	m := metrics{
		Time:    t.now().UTC().Format("2006-01-02T15:04:05.000Z"),
		Attempt: t.env.Attempt, Step: t.at.Step, Steps: t.totalSteps(), Epoch: t.at.Epoch,
		Loss: t.at.loss(), LR: t.cfg.Optimizer.LR,
		SamplesPerS: w.samplesPerS(), CommShare: w.commShare(),
	}
	if w.steps > 0 {
		m.Loss = w.loss / float64(w.steps)
	}
	if e.done {
		m.EvalLoss = &e.loss
		if t.eval.Spec().Classes > 0 {
			m.Accuracy = &e.accuracy
		}
	}
	if err := t.appendMetrics(m); err != nil && !t.metricsBroken {
		// Training is worth more than its log; one warning is enough.
		t.metricsBroken = true
		t.log.Warn("metrics are not written", "error", err)
	}
}

// appendMetrics writes one line in one Write, and ends the one before it if that was cut short.
func (t *trainer) appendMetrics(m metrics) error {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if t.metricsTorn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := t.env.Metrics.Write(append(line, '\n'))
	if n > 0 {
		t.metricsTorn = err != nil
	}
	return err
}
