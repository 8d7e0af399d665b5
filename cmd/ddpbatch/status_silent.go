package main

import (
	"strings"

	"ddpbatch/slurm"
)

// silence says what may be wrong where a submitted job has ended badly, and nothing in its run directory tells how: most often that could not
// be written to. "" where that is not so.
func (row *jobStatus) silence() string {
	switch {
	case row.State == "COMPLETED", row.State == "CANCELLED":
		return ""
	case row.Exit != nil && (slurm.JobStatus{ID: row.Job}).Of(row.verdictJob):
		return ""
	}
	why := "no verdict was left: is the run directory there on the job's nodes, writable, and its file system not full? ddpbatch logs " + row.logsName() +
		" shows what was said"
	if strings.EqualFold(row.Reason, "JobLaunchFailure") {
		why = "Slurm could not start the batch script, or not make its log (JobLaunchFailure): the run directory must be there on the job's nodes, " +
			"and writable"
	}
	return why
}
