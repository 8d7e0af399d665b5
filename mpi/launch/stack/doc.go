// Package stack reads the stacks that programs write of their threads, and finds in them the line on which a rank stands and the call in
// which it waits for other ranks. It looks at text alone: package watch asks the processes.
//
// What it reads is a worker's own writing, and not to be trusted: it takes time in proportion to its length, and whoever reads it bounds
// that.
package stack
