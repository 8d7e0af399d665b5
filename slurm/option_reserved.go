package slurm

// reservedOptions are the options of sbatch that ddpbatch sets itself, or that would keep it
// from working, with what to do instead.
var reservedOptions = map[string]string{
	"job-name":        "set name, at the top of the job file",
	"chdir":           "set workdir, at the top of the job file",
	"output":          "the output stands in the run directory; set run_dir to have it elsewhere",
	"error":           "the output stands in the run directory; set run_dir to have it elsewhere",
	"open-mode":       "the output is always appended to",
	"wrap":            "set launch.command",
	"parsable":        `use "ddpbatch submit --parsable"`,
	"test-only":       `use "ddpbatch submit --test-only"`,
	"wait":            `use "ddpbatch submit --wait"`,
	"quiet":           "sbatch would not tell the job's id",
	"export":          "put variables into env, in the [setup] table",
	"export-file":     "put variables into env, in the [setup] table",
	"ntasks":          "set launch.nproc_per_node and slurm.nodes",
	"ntasks-per-node": "set launch.nproc_per_node",
	"ntasks-per-gpu":  `set launch.nproc_per_node = "gpu"`,
	"external":        "an external job runs no script",
	"extra":           `in [slurm] it is the list of further words; for sbatch's own option put "--extra=..." into that list`,
	"help":            "it only prints",
	"usage":           "it only prints",
	"version":         "it only prints",
}
