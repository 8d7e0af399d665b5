// Package slurm is all that ddpbatch knows of Slurm, and nothing else: lists of hosts and
// of counts, times and sizes as Slurm writes them, the allocation that a step's environment
// describes, the options of sbatch, the batch script, and the commands that
// operate jobs. It supports Slurm from 22.05 on and needs none of its libraries.
//
// # The parts
//
//   - [ExpandHostlist], [FoldHostlist], [ParseTaskCounts], [ParseTime], [ParseWarning], [ParseArray]: Slurm's notations.
//   - [FromEnviron]: which node and which task of which step this process is. [Scrub]: what of an
//     environment must not leak into another job.
//   - [ParseOption], [CheckExtra], [Options]: what a job asks of sbatch.
//   - [Directives], [SrunOptions]: what a script asks of sbatch, and a command line of srun.
//   - [Script]: the batch script. [ShellQuote], [ShellJoin], [ShellAssign]: words for a shell.
//   - [Client]: sbatch, squeue, sacct, scontrol, scancel, sinfo; [JobStatus] and [JobFacts] are what they tell of a job.
//
// # What it guarantees
//
// No value of a user's becomes program text. A batch script is read twice, by sbatch (its #SBATCH
// lines) and by a shell, with two different grammars; each value is quoted for the one that reads it,
// and a value that cannot stand on one line is refused. The command to run, its
// arguments and its environment are not in the script at all: they travel in the run directory. The
// one exception is [Setup].Script, which is meant to be shell text.
//
// What comes from the environment, from Slurm's output or from a job file is taken for
// hostile: lengths are bounded and numbers checked before they are used. Nothing is
// guessed: what Slurm does not say is an error, never localhost or rank 0.
//
// # Conventions
//
// Options are named as sbatch(1) does, without dashes ("gpus-per-node"), and keys as job.toml does
// ("gpus_per_node"). Texts that Slurm prints (states, reasons, times) stay as they are. The
// package reads no environment, no flags and no files of its own, and prints nothing; functions
// that block take a context.
//
// # Limits
//
// Heterogeneous jobs can be asked about, and run in, but not submitted. The commands' text output is read, not
// --json, whose fields change from release to release.
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
