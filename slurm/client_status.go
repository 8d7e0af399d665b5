package slurm

import "strings"

// JobStatus is what Slurm tells of a job, of an element of an array, or of a group of elements that
// are still pending. The texts are Slurm's own; a field that the source of the answer does not
// tell is empty (Restarts: -1).
type JobStatus struct {
	ID        string // as Slurm shows it: "12", "12_3", "12_[4-6%2]", "12+1"
	RawID     string // the number that Slurm keeps it by: "61" for "57_1"
	Name      string // may hold anything, | and blanks too
	State     string // in full and in capitals: "RUNNING", "NODE_FAIL"; JOB STATE CODES in squeue(1)
	Reason    string // why it waits or ended, "None" where there is nothing to tell
	ExitCode  string // "code:signal", of use for ended jobs only; from accounting the code is modulo 128
	Nodes     string // how many: a number
	NodeList  string // which, folded; empty before the start
	Restarts  int    // how often it was requeued
	StartTime string // 2026-11-21T00:29:07, or N/A or Unknown; expected, for a pending job
	EndTime   string // likewise; for a running job, when its limit ends it
	TimeLimit string // d-hh:mm:ss, UNLIMITED or Partition_Limit
}

// endedStates are the states that a job does not leave by itself.
var endedStates = map[string]bool{
	"BOOT_FAIL": true, "CANCELLED": true, "COMPLETED": true, "DEADLINE": true, "FAILED": true, "LAUNCH_FAILED": true,
	"NODE_FAIL": true, "OUT_OF_MEMORY": true, "PREEMPTED": true, "REVOKED": true, "TIMEOUT": true,
}

// Ended tells whether the job is over. States that this version does not know are not.
func (s JobStatus) Ended() bool { return endedStates[s.State] }

// Running tells whether the job runs; while Slurm hands it a signal its state is SIGNALING.
func (s JobStatus) Running() bool { return s.State == "RUNNING" || s.State == "SIGNALING" }

// stuckReasons are reasons of a pending job that no other job's end takes away: it asks for what its partition, account or quality of
// service does not give, or is held ("JOB REASON CODES" in squeue(1)).
var stuckReasons = map[string]bool{
	"AccountNotAllowed": true, "BadConstraints": true, "DependencyNeverSatisfied": true, "InvalidAccount": true, "InvalidQOS": true,
	"JobHeldAdmin": true, "JobHeldUser": true, "PartitionConfig": true, "PartitionDown": true, "PartitionInactive": true,
	"PartitionNodeLimit": true, "PartitionTimeLimit": true, "QOSNotAllowed": true, "ReservationDeleted": true,
}

// Stuck tells whether the job is pending for a reason that does not pass by itself. Limits of one job ("AssocMaxNodePerJobLimit") are among
// these, limits of all jobs of a group are not.
func (s JobStatus) Stuck() bool {
	ofOneJob := strings.HasSuffix(s.Reason, "PerJob") || strings.HasSuffix(s.Reason, "PerJobLimit")
	return s.State == "PENDING" && (ofOneJob || stuckReasons[s.Reason])
}

// Of tells whether s is, or is part of, the job that the plain id (without a cluster) names.
func (s JobStatus) Of(id string) bool {
	if s.ID == id || s.RawID == id {
		return true
	}
	job, element, isElement := strings.Cut(id, "_")
	switch {
	case base(s.ID) != base(id):
		return false
	case isElement:
		_, group, _ := strings.Cut(s.ID, "_")
		return inGroup(element, group)
	}
	return job == id && !strings.Contains(id, "+") // the whole array, or the whole heterogeneous job
}
