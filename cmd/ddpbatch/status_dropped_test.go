package main

import (
	"os"
	"testing"
)

// An element that scancel took out of the queue before it began is in no answer of Slurm's any more (seen with 22.05), while the rest of its
// array is. One that began has left something.
func TestStatusOfDroppedElement(t *testing.T) {
	const dropped = "element 2 ended as CANCELLED: it was cancelled before it began"
	w := newArrayWorld(t, "0-2")
	w.submitted("12")
	w.slurm("12_0 RUNNING", "12_[1] PENDING")
	w.status("RUNNING", -1, "0 of 3 elements are done; "+dropped)
	w.ran(0, "12", 0)
	w.ran(1, "12", 0)
	w.slurm("12_0 COMPLETED", "12_1 COMPLETED")
	row := w.status("CANCELLED", 1, "2 of 3 elements are done; "+dropped)
	w.ends(row, "12", 1, "job 12: 1 of 3 elements did not end well\n  job 12_2 ended as CANCELLED: it was cancelled before it began")

	// once more, after an end of its own
	w.ran(2, "12", 3)
	w.submitted("13")
	w.slurm("13_[0-2%1] PENDING")
	w.status("PENDING", -1, "0 of 3 elements are done")
	w.ran(0, "13", 0)
	w.ran(1, "13", 0)
	w.slurm("13_0 COMPLETED", "13_1 COMPLETED")
	w.status("CANCELLED", 1, "2 of 3 elements are done; "+dropped)

	// its batch script failed at once, and Slurm has forgotten it
	const failed = "2 of 3 elements are done; element 2 ended as FAILED: no agent left a verdict; see ddpbatch logs 13_2"
	w.must(os.WriteFile(w.run.SlurmLogPath("13_2"), []byte("no such module\n"), 0o600))
	w.status("FAILED", 1, failed)
	w.must(os.Remove(w.run.SlurmLogPath("13_2")))
	w.slurm() // has forgotten the array
	w.status("FAILED", 1, failed)
}
