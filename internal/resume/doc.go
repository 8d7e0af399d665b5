// Package resume runs again a run that has ended. It makes sure that the run has no job any more, and decides what its job is with further
// overrides, whether that fits its checkpoints, from which attempt on it begins anew where that is asked for, and whether there is anything
// left to do.
package resume
