package trainer

import (
	"encoding/json"
)

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
	ResumeStep  *int64   `json:"resume_step,omitempty"`   // that it had done
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

// addSave tells in a line of metrics of the newest save, if none has yet. It reports whether there is something to tell.
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

// addResume tells in the first line of metrics what the attempt goes on from, if anything.
func (m *metrics) addResume(t *trainer) {
	c := &t.resuming
	if c.bytes == 0 || c.reported {
		return
	}
	c.reported = true
	m.ResumeStep = &t.resumed
	m.ResumeFindS, m.ResumeLoadS, m.ResumeBytes = new(c.find.Seconds()), new(c.load.Seconds()), &c.bytes
}
