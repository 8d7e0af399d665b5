// Package torchrun is the command line of `ddpbatch run`: the flags and PET_ variables of torchrun in all versions up to 2.9, the flag
// of torch.distributed.launch, and ddpbatch's own. docs/cli/run.md says what differs.
//
// Parse parts a line as torchrun's parser does (line.go), looks for each flag that is left out in its variables, and checks what holds
// wherever the command runs: values (values.go, rendezvous.go), and flags that contradict each other (options.go). The flags themselves
// are one table (flags.go). Options then tell what the workers' command is, and whether it is Python (command.go). Who runs where is
// for package placement.
package torchrun
