// Package slurm is ddpbatch's interface to Slurm. It parses host lists, counts, times and sizes as
// Slurm writes them, reads the allocation that a step's environment describes, checks the options
// of sbatch, renders the batch script, and runs the commands that operate jobs. It supports
// Slurm from 22.05 on and needs none of its libraries.
//
// # The parts
//
//   - [ExpandHostlist], [FoldHostlist], [ParseTaskCounts], [ParseTime], [ParseWarning], [ParseArray]: Slurm's notations.
//   - [FromEnviron]: which node and which task of which step this process is. [Scrub]: removes the
//     variables that must not leak into another job.
//   - [ParseOption], [CheckExtra], [Options]: what a job asks of sbatch.
//   - [Directives], [SrunOptions]: the options in a script's #SBATCH lines, and on a command line of srun.
//   - [Script]: the batch script. [ShellQuote], [ShellJoin], [ShellAssign]: words for a shell.
//   - [Client]: sbatch, squeue, sacct, scontrol, scancel, sinfo; [JobStatus] and [JobFacts] are what they report about a job.
//
// # What it guarantees
//
// No value from a user becomes program text. A batch script is read twice, by sbatch (its #SBATCH
// lines) and by a shell, with two different grammars. Each value is quoted for its reader,
// and a value that cannot stand on one line is refused. The command to run, its
// arguments and its environment are not in the script: they travel in the run directory. The
// one exception is [Setup].Script, which is meant to be shell text.
//
// Input from the environment, from Slurm's output or from a job file is treated as
// hostile: lengths are bounded and numbers checked before they are used. The package does not
// guess: a value that Slurm does not give is an error, and never becomes localhost or rank 0.
//
// # Conventions
//
// Options are named as in sbatch(1), without dashes ("gpus-per-node"), and keys as in job.toml
// ("gpus_per_node"). Texts that Slurm prints (states, reasons, times) are kept as they are. The
// package does not read the environment, flags or files by itself, and prints nothing; functions
// that block take a context.
//
// # Limits
//
// The package reads the commands' text output, not --json, whose fields change from release to release.
//
// # Example
//
//	kept, _ := slurm.Scrub(os.Environ())
//	client := &slurm.Client{Environ: kept}
//	id, err := client.Submit(ctx, "/home/ann/runs/mnist/script.sh", nil)
//	var refused *slurm.RefusedError
//	if errors.As(err, &refused) {
//		fmt.Fprintln(os.Stderr, refused.Words) // invalid partition specified: gpuu; ...
//	}
package slurm
