// Package proc starts child processes that cannot outlive this one: each in a
// process group of its own, killed by the kernel when its parent dies, and
// signalled as a group. Linux only.
package proc
