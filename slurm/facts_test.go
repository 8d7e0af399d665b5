package slurm

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/text"
)

func TestClusterConfig(t *testing.T) {
	for text, want := range map[string]ClusterConfig{
		"Configuration data as of 2026-11-21T00:55:18\nKeepAliveTime           = SYSTEM_DEFAULT\nKillOnBadExit           = 0\nKillWait   " +
			"             = 30 sec\nLaunchParameters        = (null)\n": {KillWait: 30 * time.Second, MaxArraySize: -1},
		"KillWait = 5 sec\n":                                        {KillWait: 5 * time.Second, MaxArraySize: -1},
		"KillWait = 5 sec\nSrunPortRange = 0-0\n":                   {KillWait: 5 * time.Second, MaxArraySize: -1},
		"KillWait = 5 sec\nMaxArraySize            = 1001\n":        {KillWait: 5 * time.Second, MaxArraySize: 1001},
		"KillWait = 5 sec\nMaxArraySize = 0\n":                      {KillWait: 5 * time.Second},
		"KillWait = 5 sec\nMaxArraySize = many\n":                   {KillWait: 5 * time.Second, MaxArraySize: -1},
		"SrunPortRange           = 60001-63000\nKillWait = 5 sec\n": {5 * time.Second, "60001-63000", -1},
	} {
		p := &pretend{answers: map[string]Output{"scontrol": {Stdout: []byte(text)}}}
		if got, err := p.client().ClusterConfig(t.Context()); err != nil || got != want || p.asked[0] != "scontrol show config" {
			t.Errorf("%q: %v, %v, want %v; asked %q", text, got, err, want, p.asked)
		}
	}
	for _, out := range []Output{
		{}, {Stdout: []byte("OverTimeLimit = 5 min\n")}, {Stdout: []byte("KillWait = soon\n")}, {Stdout: []byte("KillWait\n")},
		{Stdout: []byte("KillWait = -5 sec\n")},
		{Code: 1, Stderr: []byte("slurm_load_ctl_conf error: Unable to contact slurm controller (connect failure)\n")},
	} {
		p := &pretend{answers: map[string]Output{"scontrol": out}}
		if got, err := p.client().ClusterConfig(t.Context()); err == nil {
			t.Errorf("%s: %v", out.Stdout, got)
		}
	}
}

func TestFactsCorpus(t *testing.T) {
	p := &pretend{answers: map[string]Output{"scontrol": recorded(t, "cli2/scontrol-show-job-o")}}
	at := func(s string) time.Time { return slurmTime("2026-11-21T" + s) }
	for id, want := range map[string]JobFacts{
		"6": {JobStatus: JobStatus{State: "TIMEOUT", Reason: "TimeLimit", EndTime: "2026-11-21T01:24:36"}, End: at("01:24:36")},
		"7": {JobStatus: JobStatus{State: "CANCELLED", Reason: "None", EndTime: "2026-11-21T01:24:23"}, End: at("01:24:23")},
		"11": {JobStatus: JobStatus{State: "FAILED", Reason: "NonZeroExitCode", EndTime: "2026-11-21T01:24:37"},
			PreemptTime: at("01:24:36"), End: at("01:24:37")},
		"8_2": {JobStatus: JobStatus{State: "FAILED", Reason: "NonZeroExitCode", EndTime: "2026-11-21T01:24:22"}, End: at("01:24:22")},
	} {
		got, err := p.client().Facts(t.Context(), id)
		if err != nil || got.ID != id || got.State != want.State || got.Reason != want.Reason || got.EndTime != want.EndTime ||
			!got.PreemptTime.Equal(want.PreemptTime) || !got.End.Equal(want.End) || got.Exclude != "" || got.Restarts != 0 {
			t.Errorf("job %s: %+v, %v; want %+v", id, got, err, want)
		}
	}
	if _, err := p.client().Facts(t.Context(), "99"); !errors.Is(err, ErrUnknownJob) {
		t.Errorf("a job that is not there: %v", err)
	}
}

// Slurm 25.11 reports only COMPLETING while a job is being ended. Other fields show what ended it.
func TestFactsOf25_11(t *testing.T) {
	for file, want := range map[string]JobFacts{
		"cancel":   {JobStatus: JobStatus{ID: "6", State: "COMPLETING", Reason: "None"}},
		"timeout":  {JobStatus: JobStatus{ID: "5", State: "COMPLETING", Reason: "TimeLimit"}},
		"nodefail": {JobStatus: JobStatus{ID: "37", State: "COMPLETING", Reason: "None"}, Restarts: 1, FailedNode: "n2"},
		"preempt":  {JobStatus: JobStatus{ID: "7", State: "COMPLETING", Reason: "None"}, Restarts: 1, BatchFlag: 2},
	} {
		text, err := os.ReadFile(filepath.Join("testdata", "25.11", file+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		p := &pretend{answers: map[string]Output{"scontrol": {Stdout: text}}}
		got, err := p.client().Facts(t.Context(), want.ID)
		if want.BatchFlag == 0 {
			want.BatchFlag = 1
		}
		if err != nil || got.BatchFlag != want.BatchFlag || got.State != want.State || got.Reason != want.Reason ||
			got.Restarts != want.Restarts ||
			got.FailedNode != want.FailedNode || !got.PreemptTime.IsZero() {
			t.Errorf("%s: %+v, %v; want %+v", file, got, err, want)
		}
	}
}

// This is scontrol's line for a job that was preempted, must not run on some nodes, and is about to end.
func TestFacts(t *testing.T) {
	line := `JobId=61 ArrayJobId=57 ArrayTaskId=4 JobName=a UserId=b End UserId=root(0) JobState=COMPLETING Reason=None ` +
		`Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1 ` +
		`TimeLimit=UNLIMITED EndTime=Unknown PreemptEligibleTime=2026-11-21T01:24:30 PreemptTime=2026-11-21T01:24:36 ReqNodeList=(null) ` +
		`ExcNodeList=n[1,3] NodeList=n2 BatchHost=n2 NumNodes=1` + "\n"
	p := &pretend{answers: map[string]Output{"scontrol": {Stdout: []byte(line)}}}
	got, err := p.client().Facts(t.Context(), "57_4")
	if err != nil || got.RawID != "61" || got.State != "COMPLETING" || got.Restarts != 2 || got.Exclude != "n[1,3]" || !got.End.IsZero() ||
		!got.PreemptTime.Equal(time.Date(2026, 11, 21, 1, 24, 36, 0, time.Local)) || got.NoRequeue {
		t.Errorf("%+v, %v", got, err)
	}
	p.answers["scontrol"] = Output{Stdout: []byte(strings.ReplaceAll(line, " Requeue=1 ", " Requeue=0 "))}
	if got, err := p.client().Facts(t.Context(), "57_4"); err != nil || !got.NoRequeue {
		t.Errorf("submitted with --no-requeue: %+v, %v", got, err)
	}
}

func TestDownNodes(t *testing.T) {
	lines := []string{"n1|idle", "n1|idle", "n2|down*", "n2|down*", "n3|mixed*", "n4|draining", "n5|failing", "n6|completing", "n7|down$",
		"n8|idle~", "n9|allocated+", "greeting"}
	p := &pretend{answers: map[string]Output{"sinfo": {Stdout: []byte(strings.ReplaceAll(strings.Join(lines, "\n"), "|", separator))}}}
	got, err := p.client().DownNodes(t.Context(), "n[1-9]")
	if want := []string{"n2", "n3", "n5", "n7"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for _, list := range []string{"", "-a", "n1\nn2"} {
		if _, err := p.client().DownNodes(t.Context(), list); err == nil {
			t.Errorf("%q was asked for", list)
		}
		if _, err := p.client().Draining(t.Context(), list); err == nil {
			t.Errorf("%q was asked for", list)
		}
	}
}

// The states are those of sinfo(1), "NODE STATE CODES". Nodes and reasons were printed by real clusters: n1 to n4 by 22.05, where an
// administrator drained n3, and n12 and n13 by 25.11, after n12 had failed.
func TestDraining(t *testing.T) {
	lines := []string{
		"n1|mixed|none", "n1|mixed|none", "n3|drained|maintenance", "n3|drained|maintenance", "n4|idle|none",
		"n12|down*|Not responding", "n13|idle|Not responding", "n13|completing|none",
		"n20|draining|Kill task failed", "n21|draining@|Reboot ASAP", "n22|drained*|none", "n23|failing|", "n24|fail*|a | b",
		"n25|mixed+drain|none",
		"n26|idle+drain+maint|x", "n27|allocated+|none", "n28|maint|none", "n29|planned|none", "n30|mixed-|none",
		"n31|inval|low memory", "n32|reboot^|none",
		"n33|draining|\x1b[31mred\u202e", "n34|draining|" + strings.Repeat("ä", 150), "n35|draining", "|draining|none", "greeting", "",
	}
	p := &pretend{answers: map[string]Output{"sinfo": {Stdout: []byte(strings.ReplaceAll(strings.Join(lines, "\n"), "|", separator))}}}
	got, err := p.client().Draining(t.Context(), "n[1-35]")
	want := map[string]string{
		"n3": "maintenance", "n20": "Kill task failed", "n21": "Reboot ASAP", "n22": "", "n23": "", "n24": "a   b", "n25": "", "n26": "x",
		"n33": "[31mred", "n34": strings.Repeat("ä", 100),
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if asked := strings.Join(p.asked, "; "); !strings.HasPrefix(asked, "sinfo -a -h -N -n 'n[1-35]' -o ") || len(p.asked) != 1 {
		t.Errorf("asked %q", asked)
	}
	if _, err := (&pretend{}).client().Draining(t.Context(), "n1"); !errors.Is(err, ErrNoSlurm) {
		t.Errorf("without Slurm: %v", err)
	}
}

// Whatever sinfo prints, a reason is one short line without characters that control a terminal.
func FuzzDraining(f *testing.F) {
	f.Add("n3\x1fdrained\x1fmaintenance\nn4\x1fidle\x1fnone\n")
	f.Add("n3\x1fdraining@\x1fa\x1fb\r\n\x1f+\x1f\n")
	f.Fuzz(func(t *testing.T, out string) {
		for name, reason := range parseDraining([]byte(out)) {
			if name == "" || len(reason) > maxReason || strings.ContainsFunc(reason, text.Unsafe) {
				t.Errorf("%q: %q", name, reason)
			}
		}
	})
}
