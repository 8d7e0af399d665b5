// Package resume decides what a run does that is run again: its job with further overrides, whether that fits its checkpoints, from which
// attempt on it begins anew where that is asked for, and whether there is anything left to do.
package resume
