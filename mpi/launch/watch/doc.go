// Package watch tells when the workers of a node have stopped making progress, and writes down where they are, before
// they are killed.
//
// A [Watch] is a state machine without a clock, files or processes: it is told what was seen of each worker and when. [Dump] looks at
// processes as they are, and ends those that it asks for their stacks.
package watch
