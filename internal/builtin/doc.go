// Package builtin implements a rank of the built-in trainer as a part of a run: it joins the other ranks, opens the files that only rank 0
// writes, trains, and ends with an exit code and messages for the agent and the user (rank.go). It sends its agent signs of life, and
// receives the request to save and end (agent.go). Package trainer does the training.
package builtin
