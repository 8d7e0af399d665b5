// Package translate makes a job file of what a person has: a batch script for sbatch, or a command line of torchrun, srun, mpirun and the
// like. It is what `ddpbatch init --from` does.
//
// # How it works
//
// The options of the #SBATCH lines are read by package slurm, with Slurm's rules, and become keys of [slurm] (options.go). From how many
// nodes, tasks, cores and GPUs they ask for (request.go) and from the launch line follow the ranks of a node. The body is parsed by
// mvdan.cc/sh ([ADR 16] in docs/adr), never run. Its statements are read from the first to the last (statement.go), with the values of
// variables as far as the text tells them (words.go). One of them is the launch line: launchers are taken off it, from the outermost to the
// program (launch.go, launchers.go). What stands before it becomes [setup] (setup.go). Everything else becomes a comment with its line.
//
// # What it guarantees
//
// Nothing is run, and no file is read. The text is hostile: it is bounded, control characters and what is not UTF-8 never leave the
// package unescaped, and no text of the script ends the TOML string or the comment that it is in (write.go). Values that look like secrets
// are named and not copied (secret.go). Either there is an error, or a job file that package jobfile can read.
//
// # Limits
//
// Loops, functions, traps and further launch lines are told of in comments. A script for another shell than sh, bash,
// dash or ksh is an error.
package translate
