package trainer

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"ddpbatch/trainer/ddp"
)

// meter adds up steps.
type meter struct {
	steps, rows int
	loss        float64
	time        time.Duration // of the steps
	comm        time.Duration // of collectives, whatever went on at the same time
	exposed     time.Duration // of that, what nothing else went on in
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

// commShare is the share of the time in which the rank did nothing but communicate.
func (m *meter) commShare() float64 {
	if m.time <= 0 {
		return 0
	}
	return float64(m.exposed) / float64(m.time)
}

// overlap is the share of the communication that took place while gradients were computed.
func (m *meter) overlap() float64 {
	return ddp.Stats{Communication: m.comm, Exposed: m.exposed}.Overlap()
}

// announceEpoch tells what this rank is about to do, unless nothing but the epoch's end is left.
func (t *trainer) announceEpoch() {
	t.epoch, t.printedAt = meter{}, t.now()
	if t.stepsLeft() == 0 {
		return
	}
	t.print("rank %d | epoch %d | batch size %d | steps %d\n",
		t.env.Comm.Rank(), t.at.Epoch, t.cfg.BatchSize, t.at.Done+t.stepsLeft())
}

// print writes one line in one Write. A line that gets lost, say because nobody reads any
// more, is not worth a run.
func (t *trainer) print(format string, args ...any) {
	_, _ = fmt.Fprintf(t.env.Out, format, args...)
}

// measure takes note of one step of all ranks, or of this one alone.
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

// alive tells whoever wants to know that training gets on.
func (t *trainer) alive() {
	if t.env.Alive != nil {
		t.env.Alive()
	}
}

// measureAverage takes note of the time that averaging the parameters has taken.
func (t *trainer) measureAverage(took time.Duration) {
	for _, m := range []*meter{&t.sinceMetrics, &t.epoch} {
		m.time += took
		m.comm += took
		m.exposed += took
	}
}

// reportStep tells, on rank 0, how it goes in the middle of an epoch.
func (t *trainer) reportStep() {
	t.printedAt = t.now()
	e := &t.epoch
	t.print("rank 0 | epoch %d | step %d of %d | loss %.4f | samples/s %.0f | communication %.1f %% | overlap %.0f %% | %s left\n",
		t.at.Epoch, t.at.Step, t.totalSteps(), e.loss/float64(e.steps), e.samplesPerS(), 100*e.commShare(), 100*e.overlap(), round(t.timeLeft()))
}

// timeLeft is how long the steps that are left take, at this epoch's rate.
func (t *trainer) timeLeft() time.Duration {
	if t.epoch.steps == 0 {
		return 0
	}
	return time.Duration(float64(t.totalSteps()-t.at.Step) * float64(t.epoch.time) / float64(t.epoch.steps))
}

// round makes a time as exact as somebody who waits wants it.
func round(d time.Duration) time.Duration {
	if d > time.Hour {
		return d.Round(time.Minute)
	}
	return d.Round(time.Second)
}

// reportEpoch tells, on rank 0, how the epoch went.
func (t *trainer) reportEpoch() {
	if t.env.Comm.Rank() != 0 {
		return
	}
	var line strings.Builder
	fmt.Fprintf(&line, "rank 0 | epoch %d | loss %.4f", t.at.Epoch, t.at.loss())
	if t.epoch.steps > 0 { // none where a checkpoint of the epoch's last step was resumed from
		fmt.Fprintf(&line, " | samples/s %.0f", t.epoch.samplesPerS())
	}
	if t.env.Comm.Size() > 1 && t.epoch.steps > 0 {
		fmt.Fprintf(&line, " | communication %.1f %% | overlap %.0f %%", 100*t.epoch.commShare(), 100*t.epoch.overlap())
	}
	if e := t.evaluation; e.done && e.step == t.at.Step {
		if t.eval.Spec().Classes > 0 {
			fmt.Fprintf(&line, " | accuracy %.2f %%", 100*e.accuracy)
		} else {
			fmt.Fprintf(&line, " | eval loss %.4f", e.loss)
		}
	}
	t.print("%s\n", line.String())
	t.writeMetrics(evaluation{})
}

// metricsEvery is how many steps a line of metrics covers; an epoch's last may cover fewer.
const metricsEvery = 10

// metrics is one line for programs. Times and rates are those of the steps alone, without checkpoints and
// evaluation.
type metrics struct {
	Time        string   `json:"time"` // RFC 3339, UTC
	Attempt     int      `json:"attempt"`
	Step        int64    `json:"step"`
	Steps       int64    `json:"steps"` // in the whole run
	Epoch       int      `json:"epoch"`
	Loss        *float64 `json:"loss,omitempty"`       // mean over the steps since the line before; of a line about no steps: that line's
	EpochLoss   *float64 `json:"epoch_loss,omitempty"` // mean over all steps of the epoch, once it is over
	LR          float64  `json:"lr"`                   // of the last step
	SamplesPerS float64  `json:"samples_per_s"`        // of all ranks together
	CommShare   float64  `json:"comm_share"`           // of the time, with nothing else going on, 0 to 1
	Overlap     float64  `json:"overlap"`              // of the communication, while gradients were computed, 0 to 1
	LeftS       float64  `json:"left_s"`               // seconds that the run's other steps take, at this epoch's rate
	LossScale   float32  `json:"loss_scale,omitempty"` // with float16
	EvalLoss    *float64 `json:"eval_loss,omitempty"`
	Accuracy    *float64 `json:"accuracy,omitempty"` // 0 to 1; for classification

	// Of the newest checkpoint, in the first line after its commit.
	SaveS      *float64 `json:"save_s,omitempty"`       // from when it was due until it was durable
	SaveStallS *float64 `json:"save_stall_s,omitempty"` // of that, training stood still
	SaveBytes  *int64   `json:"save_bytes,omitempty"`   // on disk
	SaveRatio  *float64 `json:"save_ratio,omitempty"`   // of that to the bytes of the state

	// Its phases, in seconds. Rank 0's, of save_stall_s; the slowest rank's; and rank 0's.
	SaveWaitS   *float64 `json:"save_wait_s,omitempty"`   // for the save before it
	SaveCopyS   *float64 `json:"save_copy_s,omitempty"`   // to copy the state
	SaveEncodeS *float64 `json:"save_encode_s,omitempty"` // waiting for the encoders
	SaveWriteS  *float64 `json:"save_write_s,omitempty"`  // in write(2)
	SaveSyncS   *float64 `json:"save_sync_s,omitempty"`   // in fsync, close and rename
	SaveCommitS *float64 `json:"save_commit_s,omitempty"` // manifest and retention

	// Of the checkpoint that the attempt goes on from, in its first line, by rank 0's clock.
	ResumeFindS *float64 `json:"resume_find_s,omitempty"` // to find it, and to make sure that all ranks can go on from it
	ResumeLoadS *float64 `json:"resume_load_s,omitempty"` // to read what a rank needs of it, every byte checked
	ResumeBytes *int64   `json:"resume_bytes,omitempty"`  // on disk
}

// writeMetrics writes, on rank 0, a line about the steps since the last one and what e says, if
// there is either.
func (t *trainer) writeMetrics(e evaluation) {
	w := t.sinceMetrics
	t.sinceMetrics = meter{}
	if t.env.Comm.Rank() != 0 {
		return
	}
	var m metrics
	if saved := m.addSave(t); w.steps == 0 && !e.done && !saved {
		return
	}
	m.addResume(t)
	if w.steps > 0 {
		t.reported = w
	} else { // the line before is of this step, too
		w = t.reported
	}
	now := t.now()
	m.Time = now.UTC().Format("2006-01-02T15:04:05.000Z")
	m.Attempt, m.Step, m.Steps, m.Epoch = t.env.Attempt, t.at.Step, t.totalSteps(), t.at.Epoch
	m.LR = t.schedule.LR(max(0, t.at.Step-1))
	m.SamplesPerS, m.CommShare, m.Overlap = w.samplesPerS(), w.commShare(), w.overlap()
	m.LeftS = t.timeLeft().Seconds()
	if t.scaler != nil {
		m.LossScale = t.scaler.Scale()
	}
	if w.steps > 0 {
		m.Loss = new(w.loss / float64(w.steps))
	}
	if t.at.Done > 0 && t.stepsLeft() == 0 {
		m.EpochLoss = new(t.at.loss())
	}
	if e.done {
		m.EvalLoss = &e.loss
		if t.eval.Spec().Classes > 0 {
			m.Accuracy = &e.accuracy
		}
	}
	err := t.appendMetrics(m)
	if err == nil && t.env.Scalars != nil {
		err = t.env.Scalars(m.Step, now, m.scalars())
	}
	if err != nil && !t.metricsBroken {
		// Training is worth more than its log; one warning is enough.
		t.metricsBroken = true
		t.log.Warn("metrics are not written", "error", err)
	}
}

// scalars are the numbers of m by the names that TensorBoard groups them by.
func (m *metrics) scalars() map[string]float64 {
	all := map[string]float64{
		"train/lr": m.LR, "train/epoch": float64(m.Epoch), "speed/samples_per_s": m.SamplesPerS,
		"speed/comm_share": m.CommShare, "speed/overlap": m.Overlap,
	}
	for name, value := range map[string]*float64{
		"loss/train": m.Loss, "loss/epoch": m.EpochLoss, "loss/eval": m.EvalLoss, "accuracy/eval": m.Accuracy,
	} {
		if value != nil {
			all[name] = *value
		}
	}
	return all
}

// appendMetrics writes one line in one Write, and ends the one before it if that was cut short.
func (t *trainer) appendMetrics(m metrics) error {
	if t.env.Metrics == nil {
		return nil
	}
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
