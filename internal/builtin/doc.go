// Package builtin is a rank of the built-in trainer as a part of a run: it joins the other ranks, opens what rank 0 alone writes, trains,
// and ends with the code and the words that a person and an agent go by (rank.go). It shows its agent that it gets on, and receives the
// wish that it save and end (agent.go). Training itself is package trainer's.
package builtin
