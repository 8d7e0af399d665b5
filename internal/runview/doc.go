// Package runview shows a run to a person: how it stands (ddpbatch status), what its ranks and jobs have written (logs), and how a job
// ends that is waited for (--wait, --follow).
//
// A [Viewer] asks Slurm, and reads the run directory, which alone is enough where Slurm has forgotten a job. An array of jobs is one run
// with a directory for each element that has begun; which job each element is part of, array.go tells, as elements may be resumed alone.
package runview
