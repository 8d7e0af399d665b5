// Package clean removes the run directories of runs that have ended: it chooses them by age and state, and looks once more right before it
// removes them.
package clean
