// Package proc starts child processes that cannot outlive this one: each in a process group
// of its own, signalled as a group, and killed as one when its leader ends or this process
// dies, even by KILL. Processes that leave the group are not found. Linux only.
package proc
