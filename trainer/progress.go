package trainer

// rowsPerStep is how many rows all ranks together train on in a step; the last one of an epoch may have fewer.
func (t *trainer) rowsPerStep() int {
	return t.cfg.BatchSize * t.cfg.Accumulate * t.layout.replicas
}

// rowsPerEpoch is how many rows all ranks together are dealt in a whole epoch.
func (t *trainer) rowsPerEpoch() int {
	rows, world := t.train.Len(), t.layout.replicas
	switch t.cfg.Data.Remainder {
	case "pad":
		return ceil(rows, world) * world
	case "drop":
		return rows / world * world
	}
	return rows
}

// rowsLeft is how many rows of the epoch all ranks together have not been dealt yet.
func (t *trainer) rowsLeft() int { return t.sampler.Total() - (t.at.Rows - t.begun) }

// stepsLeft is how many steps of the epoch are left.
func (t *trainer) stepsLeft() int { return ceil(t.rowsLeft(), t.rowsPerStep()) }

// totalSteps is how many steps the run has, those before a resume included, which may have been with another number of ranks.
func (t *trainer) totalSteps() int64 {
	if t.at.Epoch >= t.cfg.Epochs { // a job that goes on with fewer epochs than it has behind it
		return t.at.Step
	}
	later := int64(t.cfg.Epochs - 1 - t.at.Epoch)
	steps := t.at.Step + int64(t.stepsLeft()) + later*int64(ceil(t.rowsPerEpoch(), t.rowsPerStep()))
	if most := int64(t.cfg.MaxSteps); most > 0 && most < steps {
		return max(most, t.at.Step) // a job may go on with fewer than it has behind it, here too
	}
	return steps
}

func (t *trainer) lastEpoch() bool { return t.at.Epoch >= t.cfg.Epochs-1 }

// enough tells whether the evaluations have stopped getting better.
func (t *trainer) enough() bool {
	patience := t.cfg.Evaluate.Patience
	return patience > 0 && t.at.Best.Since >= patience
}

// cut tells whether the run has had as many steps as max_steps lets it have.
func (t *trainer) cut() bool { return t.cfg.MaxSteps > 0 && t.at.Step >= int64(t.cfg.MaxSteps) }

// seedOf is what the i-th pass of the step draws random numbers from: no other step, replica or pass has the same.
func (t *trainer) seedOf(i int) uint64 {
	return mix(mix(mix(t.cfg.Seed, uint64(t.at.Step)), uint64(t.layout.replica)), uint64(i))
}

func (t *trainer) result(stopped bool) Result {
	epochs := t.at.Epoch
	if t.stepsLeft() == 0 {
		epochs++
	}
	e := t.evaluation
	return Result{
		Steps: t.at.Step, Epochs: epochs, Loss: t.at.loss(),
		Evaluated: e.done, Accuracy: e.accuracy, EvalLoss: e.loss,
		Checkpoint: t.path, Best: t.bestPath, Early: t.enough(), Stopped: stopped, Resumed: t.resumed,
	}
}

func ceil(a, b int) int { return (a + b - 1) / b }
