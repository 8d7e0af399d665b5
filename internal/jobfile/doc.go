// Package jobfile reads job.toml into the typed configurations of the packages that
// act on it.
//
// # What it guarantees
//
// Reading is strict: a key that the schema (schema_*.go) does not know is a fault, and so is a
// value of the wrong type or out of its range. Every fault is reported at once, in
// the order of the file, with the line and column of its key. A job that Parse returns
// is complete: every default is filled in, every path that ddpbatch itself follows
// (WorkDir, RunDir) is absolute, and every rule between keys holds. Nothing outside
// the file, and the files of defaults that it is laid over, is looked at: whether a data file or a partition exists is for
// others to say.
//
// A job with [sweep] is several: each element is checked as if its values stood in the file (sweep_check.go), and
// [Job.Element] gives its job, from the spec alone.
//
// # How it works
//
// The TOML library gives positions for syntax errors only. So the text is read twice: by the
// library, into generic tables, and by a small locator (locate.go), which finds where
// each key stands. The values are then walked along the schema, tables and
// places in step. Overrides ("--set train.epochs=2") are laid over the tables before the
// walk, and are checked by the same rules.
//
// A site and a user may have files of defaults (Defaults). Each is checked by itself when it is read; a job's tables, with its overrides,
// are then laid over theirs, together with the places, so that a fault or a setting is told with the file and line that it comes from.
//
// # Limits
//
// A file has at most 256 KiB, and its tables and lists are nested at most 32 deep: the TOML
// library took 36 seconds over 60 kB of inline tables, one inside the other. Columns count
// characters, not bytes, and a tab is one. Paths are joined as text; symbolic links are not
// resolved.
//
// # Example
//
//	job, warnings, err := jobfile.Parse("job.toml", dir, text, []string{"slurm.nodes=4"})
//	var faults jobfile.Faults
//	if errors.As(err, &faults) {
//		for _, f := range faults {
//			fmt.Fprintln(os.Stderr, f) // job.toml:5:1: unknown key slurm.nods: did you mean slurm.nodes?
//		}
//	}
package jobfile
