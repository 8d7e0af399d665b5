package slurm

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// JobID names a job as sbatch tells it: its number, and the cluster where there are several.
type JobID struct {
	ID      string // "3"
	Cluster string // "" for the cluster that the commands talk to by themselves
}

// String is the form of sbatch --parsable: "3", or "3;lab".
func (j JobID) String() string {
	if j.Cluster == "" {
		return j.ID
	}
	return j.ID + ";" + j.Cluster
}

// jobIDForm is a job, "3", an element of an array, "3_7", or a component of a heterogeneous
// job, "3+1"; with a cluster, "3;lab". Slurm's ids have at most ten digits. Counted
// repetitions take long to compile, and most processes never ask.
var jobIDForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([0-9]{1,10}(?:_[0-9]{1,10})?(?:\+[0-9]{1,10})?)(?:;([A-Za-z0-9_.-]{1,64}))?$`)
})

// ParseJobID reads the id of one job: "3", "3_7", "3+1", each also with ";cluster" after it.
// Of an array's pending elements squeue shows groups, such as "3_[4-6%2]"; they name no one
// job and are refused.
func ParseJobID(s string) (JobID, error) {
	m := jobIDForm().FindStringSubmatch(s)
	if m == nil {
		return JobID{}, fmt.Errorf("job id %s: write a number as sbatch prints it, such as 12; for one element of an array 12_3", clip(s))
	}
	return JobID{ID: m[1], Cluster: m[2]}, nil
}

// base is the number of the job that an id, as Slurm's commands show it, belongs to: of "12_[3-6%2]",
// "12_3" and "12+1" it is "12".
func base(id string) string {
	if i := strings.IndexAny(id, "_+"); i >= 0 {
		return id[:i]
	}
	return id
}
