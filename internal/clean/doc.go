// Package clean removes the run directories of runs that have ended: it chooses them by age and state, and checks their state again right
// before it removes them.
package clean
