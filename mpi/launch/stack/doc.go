// Package stack reads the stacks of threads that programs write, and finds in them the line at which a rank is and the call in
// which it waits for other ranks. It only reads text; package watch asks the processes for it.
//
// The text comes from workers and is not to be trusted. Reading it takes time in proportion to its length, which callers must
// bound.
package stack
