package slurm

import (
	"strings"
	"testing"
)

func TestParseJobID(t *testing.T) {
	for s, want := range map[string]JobID{"3": {ID: "3"}, "3;lab": {ID: "3", Cluster: "lab"}, "12_4": {ID: "12_4"}, "12+1": {ID: "12+1"},
		"1_2;a-b.c": {ID: "1_2", Cluster: "a-b.c"}} {
		if got, err := ParseJobID(s); err != nil || got != want || got.String() != s {
			t.Errorf("%s: %+v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "x", "-1", "3;", ";lab", "12_", "12_[3-6%2]", "1,2", "3 ", "3\n", "3;a b",
		"12345678901", "1.0", "3;lab;x"} {
		if got, err := ParseJobID(s); err == nil {
			t.Errorf("%q was taken as %+v", s, got)
		}
	}
}

func TestJobStatusOf(t *testing.T) {
	for _, c := range []struct {
		id, raw, asked string
		want           bool
	}{
		{"12", "12", "12", true}, {"12", "12", "1", false}, {"120", "120", "12", false},
		{"57_1", "61", "57", true}, {"57_1", "61", "57_1", true}, {"57_1", "61", "61", true}, {"57_1", "61", "57_2", false},
		{"57_1", "61", "57_11", false},
		{"57_[3-6%2]", "57", "57", true}, {"57_[3-6%2]", "57", "57_4", true}, {"57_[3-6%2]", "57", "57_7", false},
		{"57_[3-6%2]", "57", "57_2", false},
		{"18_[0,3,6,9%2]", "18", "18_9", true}, {"18_[0,3,6,9%2]", "18", "18_4", false}, {"18_[0-12:4]", "18", "18_8", true},
		{"18_[0-12:4]", "18", "18_9", false},
		{"18_[1,3,5,...]", "18", "18_99", true}, {"18_[x]", "18", "18_1", false}, {"18_[0-9:0]", "18", "18_0", false},
		{"18_[1,3...%2]", "18", "18_99", true}, {"18_[1,4,10,1", "18", "18_99", true}, {"18_[1,4,10,1", "18", "19_99", false},
		{"30+1", "31", "30", true}, {"30+1", "31", "30+1", true}, {"30+1", "31", "30+0", false}, {"30+1", "31", "31", true},
	} {
		if got := (JobStatus{ID: c.id, RawID: c.raw}).Of(c.asked); got != c.want {
			t.Errorf("%s (%s) is of %s: %t, want %t", c.id, c.raw, c.asked, got, c.want)
		}
	}
}

func TestJobThatCannotStartIsStuck(t *testing.T) {
	for _, test := range []struct {
		state, reason string
		want          bool
	}{
		{"PENDING", "PartitionConfig", true}, {"PENDING", "AssocMaxNodePerJobLimit", true},
		{"PENDING", "QOSMaxWallDurationPerJobLimit", true},
		{"PENDING", "AssocMaxCpuMinutesPerJob", true}, {"PENDING", "Priority", false}, {"PENDING", "Resources", false},
		{"PENDING", "AssocGrpCpuLimit", false},
		{"PENDING", "None", false}, {"RUNNING", "PartitionConfig", false}, {"PENDING", "JobHoldMaxRequeue", true},
		{"REQUEUE_HOLD", "JobHeldUser", true}, {"SPECIAL_EXIT", "None", true}, {"PENDING", "QOSMinGRES", true},
		{"PENDING", "a reason to come", false},
	} {
		if got := (JobStatus{State: test.state, Reason: test.reason}).Stuck(); got != test.want {
			t.Errorf("%s for %s: stuck is %t", test.state, test.reason, got)
		}
	}
}

// The states are "JOB STATE CODES" of squeue(1) from 22.05 to 26.05, and some that no release has.
func TestStatesOfAllReleases(t *testing.T) {
	for words, want := range map[string]struct{ ended, running bool }{
		"BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED LAUNCH_FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED TIMEOUT": {ended: true},
		"RUNNING SIGNALING RUNNING,SIGNALING": {running: true},
		"COMPLETING CONFIGURING PENDING POWER_UP_NODE RECONFIG_FAIL REQUEUED REQUEUE_FED REQUEUE_HOLD RESIZING " +
			"RESV_DEL_HOLD SPECIAL_EXIT STAGE_OUT STOPPED SUSPENDED": {},
		"COMPLETED,COMPLETING RUNNING,COMPLETING NODE_FAIL,REQUEUED A_STATE_TO_COME completed": {},
		"FAILED,LAUNCH_FAILED": {ended: true},
	} {
		for _, state := range strings.Fields(words) {
			s := JobStatus{State: state}
			if s.Ended() != want.ended || s.Running() != want.running {
				t.Errorf("%s: ended %t, running %t; want %+v", state, s.Ended(), s.Running(), want)
			}
		}
	}
	if s := (JobStatus{}); s.Ended() || s.Running() || s.Stuck() {
		t.Error("no state at all is taken for one")
	}
}
