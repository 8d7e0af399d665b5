package main

import (
	"ddpbatch/internal/submit"
)

// submitEnv is what package submit knows of this process.
func (e *env) submitEnv() submit.Env {
	client, dropped := newSlurmClient(e)
	return submit.Env{Hostname: e.Hostname, Now: e.Now, Log: e.log(), Slurm: client, Dropped: dropped}
}

func askUserJobs(e *env) submit.UserJobs {
	client, _ := newSlurmClient(e)
	return submit.AskUserJobs(client)
}

func wholeID(id string) string { return submit.WholeID(id) }
