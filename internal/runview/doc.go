// Package runview shows a run to the user: its state (ddpbatch status), what its ranks and jobs have written (logs), and how a job ends
// that a command waits for (--wait, --follow).
//
// A [Viewer] asks Slurm and reads the run directory. The run directory suffices if Slurm has forgotten a job. An array of jobs is one run
// with a directory for each element that has begun. Elements can be resumed without the others; array.go finds out which job each element
// is part of.
package runview
