package runview

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/blame"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/slurm"
)

// readElements reads the directories of an array's elements. Of an element that has not begun only the job is known.
func (v *Viewer) readElements(row *RunStatus) error {
	array, err := arrayIn(row.run)
	if err != nil || array == nil {
		return err
	}
	jobs := *row.array
	history, _ := row.run.Ledger()
	for _, index := range array.all() {
		var element RunStatus
		if begun := array.begun[index]; begun == nil {
			element = RunStatus{Job: jobs.of(index, ""), Name: row.Name, run: row.run, unbegun: true}
			element.cancelled = cancelledBefore(history, element.Job)
		} else if err := v.readElement(&element, begun, jobs); err != nil {
			return err
		}
		element.index = index
		row.elements = append(row.elements, element)
	}
	return nil
}

// ElementStatus is Status for an element of an array that has not begun, and so has no directory. The row's RunDir is the array's.
func (v *Viewer) ElementStatus(ctx context.Context, array *rundir.Dir, index int) (RunStatus, error) {
	whole, err := v.Status(ctx, array)
	if err != nil {
		return RunStatus{}, err
	}
	for _, element := range whole.elements {
		if element.index == index {
			element.RunDir, element.Cluster = array.Path(), whole.Cluster
			return element, nil
		}
	}
	return RunStatus{}, fmt.Errorf("element %d is not among those of %s", index, v.From.Short(array.Path()))
}

func (v *Viewer) readElement(row *RunStatus, run *rundir.Dir, jobs arrayJobs) error {
	index, _ := run.Index()
	recorded, err := run.JobID()
	if err != nil {
		return err
	}
	return v.readRun(row, run, jobs.of(index, recorded))
}

// addWaits notes whether an element of an array has not begun in its newest job, or has not begun with the settings that a resume of the
// whole array has given it.
func (row *RunStatus) addWaits(index int) {
	recorded, err := row.run.JobID()
	switch {
	case err != nil:
	case recorded != "" && row.Job != recorded:
		row.Next, row.givenUp, row.waits = "", false, true
	case row.Attempt < row.run.Spec().MoreElements[index]:
		row.waits = true
	}
}

// cancelledBefore reports whether a user has canceled a job before it began, according to the ledger of its run or of its array.
func cancelledBefore(history []rundir.Event, job string) bool {
	return recovery.WasCancelled(append(slices.Clone(history), rundir.Event{Event: rundir.EventBegin, Job: job}))
}

// addElements fills an array's row from its elements. jobs is what Slurm knows.
func (row *RunStatus) addElements(jobs []slurm.JobStatus) {
	for i := range row.elements {
		element := &row.elements[i]
		element.addState(jobs)
		if row.Simulated && element.Attempt == 0 {
			element.State, element.Ended = "PENDING", false
		}
	}
	if len(row.array.indices) == 0 {
		row.addUnknown(jobs)
	}
	row.addUp()
}

// addUnknown adds elements of which only Slurm knows.
func (row *RunStatus) addUnknown(jobs []slurm.JobStatus) {
	for _, job := range jobs {
		array, number, _ := strings.Cut(job.ID, "_")
		known := slices.ContainsFunc(row.elements, func(element RunStatus) bool { return number == strconv.Itoa(element.index) })
		if job.Name == row.Name && slices.Contains(row.array.ids(), array) && !known {
			element := RunStatus{Job: job.ID, Name: row.Name, run: row.run, index: -1}
			element.takeState(job)
			row.elements = append(row.elements, element)
		}
	}
}

// addUp takes the state from one element: one that has not ended, or else the first of those with the largest exit code.
func (row *RunStatus) addUp() {
	row.State, row.Reason, row.Exit, row.Cause, row.Next, row.saved = "UNKNOWN", "", nil, "", "", false
	t := row.tally()
	all := len(row.elements)
	row.Message = t.text(all)
	if t.open != nil && len(row.array.indices) == 0 { // one job of Slurm may stand for many elements
		row.Message = t.text(0)
	}
	row.Ended = t.open == nil && !row.Simulated
	switch {
	case t.open != nil:
		row.State, row.Reason, row.Ends = t.open.State, t.open.Reason, t.open.Ends
	case !row.Ended: // simulated, between two elements
		row.State = "RUNNING"
	case t.worst != nil:
		row.State, row.Exit, row.saved = t.worst.State, &t.code, t.worst.saved
		if t.worst.VerdictJob == t.worst.Job {
			row.Cause, row.Exit = t.worst.Cause, t.worst.Exit
		}
	case all > 0 && t.done == all:
		row.State, row.Exit, row.Message = "COMPLETED", &t.code, fmt.Sprintf("all %d elements are done", all)
	}
}

// tally counts an array's elements by how they ended.
type tally struct {
	done, failed int
	open, worst  *RunStatus // nil if there is none
	code         int        // exit code of worst
}

// tally also adds up the fields that are sums over the elements.
func (row *RunStatus) tally() (t tally) {
	row.Attempt, row.Restarts, row.Requeues, row.Saved = 0, 0, 0, nil
	for i := range row.elements {
		element := &row.elements[i]
		row.Attempt = max(row.Attempt, element.Attempt)
		row.Restarts += element.Restarts
		row.Requeues += element.Requeues
		row.Expected = row.Expected || element.Expected && !element.Reported
		if saved := element.Saved; saved != nil && (row.Saved == nil || saved.After(*row.Saved)) {
			row.Saved = saved
		}
		err := element.end()
		switch code := codeOf(err); {
		case !element.Ended && (t.open == nil || element.State == "RUNNING" && t.open.State != "RUNNING"):
			t.open = element
		case !element.Ended, element.neverBegan():
		case err == nil:
			t.done++
		default:
			t.failed++
			if code > t.code {
				t.worst, t.code = element, code
			}
		}
	}
	return t
}

// text describes the counts in words. all is the number of elements, or 0 if it is not known.
func (t tally) text(all int) string {
	text := fmt.Sprintf("%d of %d elements are done", t.done, all)
	if all == 0 {
		text = fmt.Sprintf("%d of its elements are done", t.done)
	}
	if t.failed > 1 {
		text += fmt.Sprintf(", %d did not end well", t.failed)
	}
	if t.worst != nil {
		text += "; " + t.worst.endInArray()
	}
	return text
}

// endInArray describes how an element ended.
func (row *RunStatus) endInArray() string {
	_, index, _ := strings.Cut(row.Job, "_")
	if row.index >= 0 { // it may differ from Slurm's
		index = strconv.Itoa(row.index)
	}
	if row.VerdictJob == row.Job {
		return "element " + index + ": " + row.Ending()
	}
	return fmt.Sprintf("element %s ended as %s: %s", index, row.State, row.why())
}

// FinishedElements returns the indices of an array's elements that have finished their work.
func (row *RunStatus) FinishedElements() (indices []int) {
	for i := range row.elements {
		if element := &row.elements[i]; element.index >= 0 && element.Finished() {
			indices = append(indices, element.index)
		}
	}
	return indices
}

// OpenElements names the elements of an array that have not ended, without the one with the index but: "0, 2-5". It returns "" if there are
// none.
func (row *RunStatus) OpenElements(but int) string {
	var indices []int
	var names []string
	for _, element := range row.elements {
		switch {
		case element.Ended || element.index == but:
		case element.index < 0: // elements that only Slurm knows: "12_[4-6%2]"
			_, number, _ := strings.Cut(element.Job, "_")
			names = append(names, number)
		default:
			indices = append(indices, element.index)
		}
	}
	if len(indices) > 0 {
		names = append([]string{blame.Ranges(indices)}, names...)
	}
	return strings.Join(names, ", ")
}

// neverBegan reports whether nothing is known of an ended element.
func (row *RunStatus) neverBegan() bool { return row.Attempt == 0 && row.State == "UNKNOWN" }

// ofJob restricts an array's row to the job id: the whole array, with what was resumed since, or some elements.
func (row RunStatus) ofJob(id string) RunStatus {
	if row.array == nil || row.run.Spec().ArraySize > 0 { // its jobs form one sweep
		return row
	}
	resumed := row.array.resumedIn(id)
	row.elements = slices.DeleteFunc(slices.Clone(row.elements), func(element RunStatus) bool {
		if len(resumed) > 0 {
			return !slices.Contains(resumed, element.index)
		}
		return len(row.array.indices) > 0 && !slices.Contains(row.array.indices, element.index)
	})
	row.addUp()
	return row
}
