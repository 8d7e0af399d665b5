// Package torchrun is the command line of `ddpbatch run`: the flags and PET_ variables of torchrun in all versions up to 2.9, the flag of
// torch.distributed.launch, and ddpbatch's own. docs/cli/run.md lists the differences.
//
// Parse splits a line as torchrun's parser does (line.go), looks up each missing flag in its variables, and makes the checks that do not
// depend on where the command runs: of values (values.go, rendezvous.go) and of flags that contradict each other (options.go). The flags
// are in one table (flags.go). Options then returns the workers' command, and whether it is Python (command.go). Package placement decides
// which ranks run where.
package torchrun
