package slurm

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// JobStatus is what Slurm reports about a job, an element of an array, or a group of elements that
// are still pending. The texts are Slurm's own. A field is empty if the source of the answer does not
// report it.
type JobStatus struct {
	ID        string // as Slurm shows it: "12", "12_3", "12_[4-6%2]", "12+1"
	RawID     string // the number by which Slurm identifies it: "61" for "57_1"
	Name      string // may contain anything, | and spaces too
	State     string // in full and in capitals: "RUNNING", "NODE_FAIL"; JOB STATE CODES in squeue(1)
	Reason    string // why it waits or ended; "None" if there is no reason
	EndTime   string // 2026-11-21T00:29:07, or N/A or Unknown; for a running job, when its limit ends it
	TimeLimit string // d-hh:mm:ss, UNLIMITED or Partition_Limit
}

// endedStates are the states that a job does not leave by itself.
var endedStates = map[string]bool{
	"BOOT_FAIL": true, "CANCELLED": true, "COMPLETED": true, "DEADLINE": true, "FAILED": true, "LAUNCH_FAILED": true,
	"NODE_FAIL": true, "OUT_OF_MEMORY": true, "PREEMPTED": true, "REVOKED": true, "TIMEOUT": true,
}

// Ended reports whether the job is over. It is not if one of its states is unknown to this version or is not an end: a job that failed with
// its node and is requeued has several states.
func (s JobStatus) Ended() bool {
	return !slices.ContainsFunc(s.states(), func(state string) bool { return !endedStates[state] })
}

// Running reports whether the job runs. While Slurm sends it a signal, its state is SIGNALING.
func (s JobStatus) Running() bool {
	states := s.states()
	return slices.Contains(states, "RUNNING") && !slices.Contains(states, "COMPLETING") || slices.Contains(states, "SIGNALING")
}

// Ends returns when the time limit ends a running job. It is zero if the job does not run or has no limit, or if Slurm did not say.
func (s JobStatus) Ends() time.Time {
	if !s.Running() {
		return time.Time{}
	}
	return slurmTime(s.EndTime)
}

// states returns the words of State. Most releases print one; "RUNNING,SIGNALING" has two.
func (s JobStatus) states() []string { return strings.Split(s.State, ",") }

// heldStates are the states of a job that Slurm has put back into the queue, and that waits there until somebody releases it.
var heldStates = map[string]bool{"REQUEUE_HOLD": true, "RESV_DEL_HOLD": true, "SPECIAL_EXIT": true}

// stuckReasons are the reasons of a pending job that remain even when other jobs end: it asks for what its partition, account or quality of
// service does not allow, or is held ("JOB REASON CODES" in squeue(1)).
var stuckReasons = map[string]bool{
	"AccountNotAllowed": true, "BadConstraints": true, "DependencyNeverSatisfied": true, "InvalidAccount": true, "InvalidQOS": true,
	"JobHeldAdmin": true, "JobHeldUser": true, "JobHoldMaxRequeue": true, "PartitionConfig": true, "PartitionDown": true,
	"PartitionInactive": true, "PartitionNodeLimit": true, "PartitionTimeLimit": true, "QOSMinCpuNotSatisfied": true,
	"QOSMinGRES": true, "QOSMinMemory": true,
	"QOSMinNode": true, "QOSNotAllowed": true, "ReservationDeleted": true,
}

// Stuck reports whether the job is pending for a reason that does not go away by itself. Limits of one job ("AssocMaxNodePerJobLimit") are
// such reasons, limits of all jobs of a group are not.
func (s JobStatus) Stuck() bool {
	ofOneJob := strings.HasSuffix(s.Reason, "PerJob") || strings.HasSuffix(s.Reason, "PerJobLimit")
	return heldStates[s.State] || s.State == "PENDING" && (ofOneJob || stuckReasons[s.Reason])
}

// Of reports whether s is, or is part of, the job that the plain id (without a cluster) names.
func (s JobStatus) Of(id string) bool {
	if s.ID == id || s.RawID == id {
		return true
	}
	job, element, isElement := strings.Cut(id, "_")
	switch {
	case WholeID(s.ID) != WholeID(id):
		return false
	case isElement:
		_, group, _ := strings.Cut(s.ID, "_")
		return inGroup(element, group)
	}
	return job == id && !strings.Contains(id, "+") // the whole array, or the whole heterogeneous job
}

// JobID identifies a job as sbatch prints it: its number, and the cluster if there are several.
type JobID struct {
	ID      string // "3"
	Cluster string // "": the default one
}

// String returns the form of sbatch --parsable: "3", or "3;lab".
func (j JobID) String() string {
	if j.Cluster == "" {
		return j.ID
	}
	return j.ID + ";" + j.Cluster
}

// CancelCommand returns the command line that a person types to have Slurm cancel the job.
func (j JobID) CancelCommand() string {
	return ShellJoin(append([]string{"scancel"}, onCluster(j.Cluster, j.ID)...))
}

// jobIDForm matches a job, "3", an element of an array, "3_7", or a component of a heterogeneous
// job, "3+1"; with a cluster, "3;lab". Slurm's ids have at most ten digits. It is compiled on first use:
// counted repetitions take long to compile, and most processes do not need it.
var jobIDForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([0-9]{1,10}(?:_[0-9]{1,10})?(?:\+[0-9]{1,10})?)(?:;([A-Za-z0-9_.-]{1,64}))?$`)
})

// ParseJobID parses the id of one job: "3", "3_7", "3+1", each also with ";cluster" after it.
// It refuses groups of an array's pending elements as squeue shows them, such as "3_[4-6%2]", which do not
// name a single job.
func ParseJobID(s string) (JobID, error) {
	m := jobIDForm().FindStringSubmatch(s)
	if m == nil {
		return JobID{}, fmt.Errorf("job id %s: write a number as sbatch prints it, such as 12; for one element of an array 12_3", clip(s))
	}
	return JobID{ID: m[1], Cluster: m[2]}, nil
}

// WholeID returns the id of the whole job if id, as Slurm's commands show it, is an element of an array, a group of elements or a
// component: "12" for "12_[3-6%2]", "12_3" and "12+1".
func WholeID(id string) string {
	if i := strings.IndexAny(id, "_+"); i >= 0 {
		return id[:i]
	}
	return id
}

// inGroup reports whether an element of an array is among those that Slurm shows as one group:
// "[0,3,6-9,20-40:5%2]"; %2 is how many may run at once. Slurm truncates long groups,
// with three dots ("[1-3,5...%2]") or, in squeue's narrow columns, in the middle of a
// number ("[1-3,5,1"). An element may be in the part that is not shown, so inGroup returns true then.
func inGroup(element, group string) bool {
	list, bracket := strings.CutPrefix(group, "[")
	if !bracket {
		return group == element
	}
	list, whole := strings.CutSuffix(list, "]")
	list, _, _ = strings.Cut(list, "%")
	if !whole || strings.HasSuffix(list, "...") {
		return true
	}
	n, err := strconv.ParseUint(element, 10, 32)
	if err != nil {
		return false
	}
	for item := range strings.SplitSeq(list, ",") {
		if inSpan(n, item) {
			return true
		}
	}
	return false
}

// inSpan reports whether n is in "7", "3-6" or "20-40:5".
func inSpan(n uint64, item string) bool {
	bounds, step, hasStep := strings.Cut(item, ":")
	low, high, isRange := strings.Cut(bounds, "-")
	if !isRange {
		high = low
	}
	if !hasStep {
		step = "1"
	}
	lo, err1 := strconv.ParseUint(low, 10, 32)
	hi, err2 := strconv.ParseUint(high, 10, 32)
	by, err3 := strconv.ParseUint(step, 10, 32)
	if err1 != nil || err2 != nil || err3 != nil || by == 0 {
		return false
	}
	return lo <= n && n <= hi && (n-lo)%by == 0
}
