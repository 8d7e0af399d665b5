// Package translate makes a job file from a batch script for sbatch, or from a command line of torchrun, srun, mpirun and similar
// launchers. It implements `ddpbatch init --from`.
//
// # How it works
//
// Package slurm reads the options of the #SBATCH lines by Slurm's rules, and they become keys of [slurm] (options.go). The ranks per node
// follow from the numbers of nodes, tasks, cores and GPUs (request.go) and from the launch line. The body is parsed by mvdan.cc/sh ([ADR
// 16] in docs/adr), and never run. Its statements are read in order (statement.go), with the values of variables as far as the text
// determines them (words.go). One of them is the launch line: its launchers are removed, from the outermost to the program (launch.go,
// launchers.go). What comes before it becomes [setup] (setup.go). Everything else becomes a comment with its line number.
//
// # What it guarantees
//
// Nothing is run, and no file is read. The text may be hostile: its size is limited, control characters and invalid UTF-8 never leave the
// package unescaped, and no text of the script ends the TOML string or the comment that contains it (write.go). Values that look like
// secrets are named but not copied (secret.go). The result is an error, or a job file that package jobfile can read.
//
// # Limits
//
// Loops, functions, traps and further launch lines become comments. A script for a shell other than sh, bash, dash or ksh is an error.
package translate
