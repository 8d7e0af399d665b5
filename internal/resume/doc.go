// Package resume submits a run again that has ended. It makes sure that the run has no job any more. It decides what the job is with
// further overrides, whether that fits the run's checkpoints, from which attempt on it starts without a checkpoint if that is requested,
// and whether anything is left to do.
package resume
