package trainer

import (
	"encoding/json"
)

// metricsEvery is how many steps a line of metrics covers. The last line of an epoch may cover fewer.
const metricsEvery = 10

// metrics is one line for programs. Times and rates are those of the steps alone, without checkpoints and
// evaluation.
type metrics struct {
	Time        string   `json:"time"` // RFC 3339, UTC
	Attempt     int      `json:"attempt"`
	Step        int64    `json:"step"`
	Steps       int64    `json:"steps"` // in the whole run
	Epoch       int      `json:"epoch"`
	Loss        *float64 `json:"loss,omitempty"`       // mean over the steps since the line before; without such steps, that line's loss
	EpochLoss   *float64 `json:"epoch_loss,omitempty"` // mean over all steps of the epoch, once it has ended
	LR          float64  `json:"lr"`                   // of the last step
	SamplesPerS float64  `json:"samples_per_s"`        // of all ranks together
	CommShare   float64  `json:"comm_share"`           // share of the time in which the rank only communicated, 0 to 1
	Overlap     float64  `json:"overlap"`              // share of the communication that ran while gradients were computed, 0 to 1
	LeftS       float64  `json:"left_s"`               // seconds that the run's remaining steps will take, at this epoch's rate
	LossScale   float32  `json:"loss_scale,omitempty"` // with float16
	EvalLoss    *float64 `json:"eval_loss,omitempty"`
	Accuracy    *float64 `json:"accuracy,omitempty"` // 0 to 1; for classification

	// Of the newest checkpoint, in the first line after its commit.
	SaveS      *float64 `json:"save_s,omitempty"`       // from when it was due until it was durable
	SaveStallS *float64 `json:"save_stall_s,omitempty"` // the part of that in which training stood still
	SaveBytes  *int64   `json:"save_bytes,omitempty"`   // on disk
	SaveRatio  *float64 `json:"save_ratio,omitempty"`   // save_bytes divided by the bytes of the state

	// The phases of the save, in seconds: two of save_stall_s on rank 0, three on the slowest rank, and one on rank 0.
	SaveWaitS   *float64 `json:"save_wait_s,omitempty"`   // for the save before it
	SaveCopyS   *float64 `json:"save_copy_s,omitempty"`   // to copy the state
	SaveEncodeS *float64 `json:"save_encode_s,omitempty"` // waiting for the encoders
	SaveWriteS  *float64 `json:"save_write_s,omitempty"`  // in write(2)
	SaveSyncS   *float64 `json:"save_sync_s,omitempty"`   // in fsync, close and rename
	SaveCommitS *float64 `json:"save_commit_s,omitempty"` // manifest and retention

	// About the checkpoint that the attempt resumed from, in its first line, by rank 0's clock.
	ResumeStep  *int64   `json:"resume_step,omitempty"`   // the checkpoint's step
	ResumeFindS *float64 `json:"resume_find_s,omitempty"` // to find it, and to check that all ranks can resume from it
	ResumeLoadS *float64 `json:"resume_load_s,omitempty"` // to read what a rank needs of it, with every byte checked
	ResumeBytes *int64   `json:"resume_bytes,omitempty"`  // on disk
}

// writeMetrics writes, on rank 0, a line about the steps since the last one, about e, and about a new save, if there is
// any of these.
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
	} else { // the previous line is of this step, too
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
		// Training is more important than its log; one warning is enough.
		t.metricsBroken = true
		t.log.Warn("metrics cannot be written", "error", err)
	}
}

// scalars returns the numbers of m under the names by which TensorBoard groups them.
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

// appendMetrics writes one line in one Write. If the line before it was cut short, it ends that first.
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

// addSave adds the newest save to a line of metrics, unless a line has reported it. It returns whether it has added something.
func (m *metrics) addSave(t *trainer) bool {
	if t.cost.reported == t.cost.count {
		return false
	}
	s := t.saver.Stats()
	if s.Saves == t.cost.reported {
		return false
	}
	t.cost.reported = s.Saves
	own := t.cost.of(s.Step)
	m.SaveS, m.SaveStallS, m.SaveBytes, m.SaveRatio = new(s.Total.Last.Seconds()), new(own.took.Seconds()), &s.Stored, new(s.Ratio())
	m.SaveWaitS, m.SaveCopyS = new(own.waited.Seconds()), new(own.copied.Seconds())
	m.SaveEncodeS, m.SaveWriteS = new(s.Encode.Seconds()), new(s.Write.Seconds())
	m.SaveSyncS, m.SaveCommitS = new(s.Sync.Seconds()), new(s.Commit.Seconds())
	return true
}

// addResume adds to the first line of metrics what the attempt resumed from, if anything.
func (m *metrics) addResume(t *trainer) {
	c := &t.resuming
	if c.bytes == 0 || c.reported {
		return
	}
	c.reported = true
	m.ResumeStep = &t.resumed
	m.ResumeFindS, m.ResumeLoadS, m.ResumeBytes = new(c.find.Seconds()), new(c.load.Seconds()), &c.bytes
}
