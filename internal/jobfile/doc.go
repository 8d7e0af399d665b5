// Package jobfile reads job.toml into the typed configurations of the packages that
// act on it.
//
// # What it guarantees
//
// Reading is strict: a key that the schema (schema*.go) does not know is a fault, and so is a
// value of the wrong type or out of its range. All faults are reported at once, in
// the order of the file, with the line and column of their keys. A job that Parse returns
// is complete: every default is filled in, every path that ddpbatch itself uses
// (WorkDir, RunDir) is absolute, and every rule between keys holds. Parse reads only
// the file and the files of defaults: other functions check whether a data file or a partition exists.
//
// A job with [sweep] is several jobs: each element is checked as if its values were in the file (sweep_check.go), and
// [Job.Element] returns an element's job, from the spec alone.
//
// # How it works
//
// The TOML library gives positions only for syntax errors. So the text is read twice: by the
// library, into generic tables, and by a small locator (locate.go), which finds the position of
// each key. The values are then checked against the schema, with tables and
// positions side by side. Overrides ("--set train.epochs=2") are merged into the tables before
// that, and are checked by the same rules.
//
// A site and a user may have files of defaults (Defaults). Each is checked by itself when it is read. A job's tables, with its overrides,
// are then merged over those of the defaults, together with the positions, so that a fault or a setting is reported with its file and line.
//
// # Limits
//
// A file may have at most 256 KiB, and its tables and lists may be nested at most 32 deep: the TOML
// library took 36 seconds for 60 kB of inline tables, one inside the other. Columns count
// characters, not bytes, and a tab is one character. Paths are joined as text; symbolic links are not
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
