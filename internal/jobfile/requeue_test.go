package jobfile

import (
	"encoding/json"
	"reflect"
	"slices"
	"testing"
	"time"

	"ddpbatch/mpi/launch/recovery"
)

func TestRequeueTableGivesThePolicy(t *testing.T) {
	all := []recovery.Cause{"preempt", "timeout", "node"}
	for _, test := range []struct {
		name, src string
		want      recovery.Policy
		warnings  []string
	}{
		{"nothing said", "", recovery.Policy{On: all, Lead: 2 * time.Minute, NoProgress: 3}, nil},
		{"an empty table", "[requeue]\n", recovery.Policy{On: all, Lead: 2 * time.Minute, NoProgress: 3}, nil},
		{"never", "[requeue]\non = []\n", recovery.Policy{Lead: 2 * time.Minute, NoProgress: 3}, nil},
		{"all of it", "[requeue]\non = [\"oom\", \"hang\", \"crash\"]\nmax = { oom = 2, crash = 0 }\nlead = \"30s\"\nno_progress = 7\n",
			recovery.Policy{On: []recovery.Cause{"oom", "hang", "crash"},
				Max:  map[recovery.Cause]int{"oom": 2, "crash": 0},
				Lead: 30 * time.Second, NoProgress: 7}, nil},
		{"a tenth of a short limit", "[slurm]\ntime = \"00:05:00\"\n",
			recovery.Policy{On: all, Lead: 30 * time.Second, NoProgress: 3}, nil},
		{"no less than ten seconds", "[slurm]\ntime = 1\n", recovery.Policy{On: all, Lead: 10 * time.Second, NoProgress: 3}, nil},
		{"no more than two minutes", "[slurm]\ntime = \"2-0\"\n", recovery.Policy{On: all, Lead: 2 * time.Minute, NoProgress: 3}, nil},
		{"no limit", "[slurm]\ntime = \"UNLIMITED\"\n[requeue]\nlead = \"9h\"\n",
			recovery.Policy{On: all, Lead: 9 * time.Hour, NoProgress: 3}, nil},
		{"too short a lead", "[requeue]\nlead = \"9s\"\n", recovery.Policy{On: all, Lead: 9 * time.Second, NoProgress: 3},
			[]string{`job.toml:3:1: requeue.lead = "9s" leaves hardly any time to save; write "10s" or more`}},
		{"too long a lead", "[slurm]\ntime = 60\n[requeue]\nlead = \"31m\"\n",
			recovery.Policy{On: all, Lead: 31 * time.Minute, NoProgress: 3},
			[]string{`job.toml:5:1: requeue.lead = "31m0s" is more than half of the time limit (01:00:00): ` +
				`the run is stopped before it has done much`}},
		{"a budget for nothing", "[requeue]\nmax.hang = 1\nmax.crash = 0\n",
			recovery.Policy{On: all, Max: map[recovery.Cause]int{"hang": 1, "crash": 0}, Lead: 2 * time.Minute, NoProgress: 3},
			[]string{`job.toml:3:5: requeue.max.hang = 1 has no effect: requeue.on does not name "hang"`}},
		{"Slurm must not", "[slurm]\nno_requeue = true\n[requeue]\non = [\"node\"]\n",
			recovery.Policy{On: []recovery.Cause{"node"}, Lead: 2 * time.Minute, NoProgress: 3},
			[]string{"job.toml:3:1: slurm.no_requeue: Slurm will refuse what requeue.on asks for; leave one of them out"}},
		{"Slurm must not, by another word", "[slurm]\nextra = [\"-v\", \"--no-requeue\"]\n[requeue]\non = [\"node\"]\n",
			recovery.Policy{On: []recovery.Cause{"node"}, Lead: 2 * time.Minute, NoProgress: 3},
			[]string{"job.toml:3:1: slurm.extra: Slurm will refuse what requeue.on asks for; leave one of them out"}},
		{"a signal of one's own", "[slurm]\nsignal = \"B:USR1@90\"\n",
			recovery.Policy{On: all, Lead: 90 * time.Second, NoProgress: 3}, nil},
		{"a stop of the tasks", "[slurm]\nsignal = \"TERM@30\"\n", recovery.Policy{On: all, Lead: 2 * time.Minute, NoProgress: 3}, nil},
		{"a signal and another lead", "[slurm]\nsignal = \"USR2\"\n[requeue]\nlead = \"30s\"\n",
			recovery.Policy{On: all, Lead: time.Minute, NoProgress: 3},
			[]string{`job.toml:5:1: requeue.lead = "30s" has no effect: ` +
				`slurm.signal says that the job is warned 1m0s before its end`}},
		{"a signal that says nothing", "[slurm]\nsignal = \"USR1@60\"\n", recovery.Policy{On: all, Lead: 2 * time.Minute, NoProgress: 3},
			[]string{`job.toml:3:1: slurm.signal = "USR1@60" has no effect: ` +
				`without B: the signal goes to the tasks, which ignore USR1; write "B:USR1@60"`}},
		{"a signal that is noted", "[slurm]\nsignal = \"B:TERM@60\"\n", recovery.Policy{On: all, Lead: 2 * time.Minute, NoProgress: 3},
			[]string{`job.toml:3:1: slurm.signal = "B:TERM@60" has no effect: ` +
				`the batch script only records TERM and goes on; write "B:USR2@120"`}},
		{"a signal that never comes", "[slurm]\nsignal = \"B:USR1@0\"\n", recovery.Policy{On: all, Lead: 2 * time.Minute, NoProgress: 3},
			[]string{`job.toml:3:1: slurm.signal = "B:USR1@0": Slurm does not send a signal 0 seconds before the limit`}},
		{"Slurm must not, and nobody asked", "[slurm]\nno_requeue = true\n",
			recovery.Policy{On: all, Lead: 2 * time.Minute, NoProgress: 3}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			job, warnings, err := parse("name = \"x\"\n" + test.src + "[launch]\nmax_restarts = 4\ncommand = [\"true\"]\n")
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(job.Requeue, test.want) {
				t.Errorf("got %+v, want %+v", job.Requeue, test.want)
			}
			if got := lines(warnings); !slices.Equal(got, test.warnings) {
				t.Errorf("warnings %q, want %q", got, test.warnings)
			}
			text, err := json.Marshal(job)
			var back Job
			if err = json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(&back, job) {
				t.Errorf("from spec.json comes %+v, %v", back.Requeue, err)
			}
			test.want.MaxRestarts = 4
			policy := back.Policy()
			policy.Limit = 0 // see TestPolicyKnowsTheLimit
			if !reflect.DeepEqual(policy, test.want) {
				t.Errorf("the policy is %+v", policy)
			}
		})
	}
}

func TestPolicyKnowsTheLimit(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"":                                0,
		"[slurm]\ntime = 4\n":             4 * time.Minute,
		"[slurm]\ntime = \"2-0\"\n":       48 * time.Hour,
		"[slurm]\ntime = \"UNLIMITED\"\n": 0,
	} {
		job, _, err := parse("name = \"x\"\n" + text + "[launch]\ncommand = [\"true\"]\n")
		if err != nil {
			t.Fatal(err)
		}
		if got := job.Policy().Limit; got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestUncaughtSignalsAreFaults: a signal that would end the job's script or its tasks is a fault.
func TestUncaughtSignalsAreFaults(t *testing.T) {
	for signal, want := range map[string]string{
		"B:ALRM": `job.toml:2:7: slurm.signal = "B:ALRM": the batch script does not catch ALRM, which would end the job or do ` +
			`nothing; write "B:USR2@120"`,
		"KILL@30": `job.toml:2:7: slurm.signal = "KILL@30": ddpbatch run does not catch KILL, which would end the job's tasks or do ` +
			`nothing; write "B:USR2@120"`,
		"USR2@30": `job.toml:2:7: slurm.signal = "USR2@30": ddpbatch run does not catch USR2, which would end the job's tasks or do ` +
			`nothing; write "B:USR2@120"`,
		"USR9": `job.toml:2:7: slurm.signal: signal "USR9": unknown signal; write what sbatch's --signal takes, such as B:USR2@120`,
	} {
		checkFaults(t, "name = \"x\"\nslurm.signal = \""+signal+"\"\n[launch]\nwarn_signal = \"USR1\"\ncommand = [\"true\"]", nil, want)
	}
}
