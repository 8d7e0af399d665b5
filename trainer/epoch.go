package trainer

import "ddpbatch/trainer/data"

// dealEpoch deals out the rows of the epoch that have not been trained on.
func (t *trainer) dealEpoch() {
	t.begun = t.at.Rows
	t.sampler.SetEpoch(t.at.Epoch, t.at.Rows)
}

// beginEpoch deals the rows out and has the first of them read.
func (t *trainer) beginEpoch() {
	t.dealEpoch()
	t.loader.Begin(t.sampler.Indices(), t.cfg.BatchSize)
	t.announceEpoch()
}

// nextBatch is this replica's rows of the next pass. There are none left where rows do not divide evenly and others have one more.
func (t *trainer) nextBatch() *data.Batch {
	if t.last = t.loader.Next(); t.last == nil {
		t.last = &t.none
	}
	return t.last
}
