// Package watch finds out when the workers of a node have stopped making progress, and writes down where they are before they are
// killed.
//
// A [Watch] is a state machine without a clock, files or processes: its caller passes what was observed of each worker, and when. A
// [Dumper] inspects running processes, and ends those that it asks for their stacks.
package watch
