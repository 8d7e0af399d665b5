package slurm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// squeueLine joins fields, given by the letters of squeueFormat, into a line as squeue prints it.
func squeueLine(fields map[byte]string) string {
	var out []string
	for _, letter := range []byte("iATrelj") {
		out = append(out, fields[letter])
	}
	return strings.Join(out, separator) + "\n"
}

// squeueCorpus converts a recording of squeue with bars between the fields into this package's format. letters are the recorded fields; the
// last one may contain bars.
func squeueCorpus(t *testing.T, name, letters string) Output {
	t.Helper()
	out := recorded(t, name)
	var text strings.Builder
	for line := range strings.Lines(string(out.Stdout)) {
		values := strings.SplitN(strings.TrimSuffix(line, "\n"), "|", len(letters))
		if len(values) != len(letters) {
			t.Fatalf("%s: %q has %d fields", name, line, len(values))
		}
		fields := map[byte]string{}
		for i := range letters {
			fields[letters[i]] = values[i]
		}
		text.WriteString(squeueLine(fields))
	}
	out.Stdout = []byte(text.String())
	return out
}

func TestParseSqueueCorpus(t *testing.T) {
	out := squeueCorpus(t, "cli2/squeue-fmt", "iAFKtTrNDCPjlMSek")
	jobs := parseSqueue(out.Stdout)
	if len(jobs) != 6 {
		t.Fatalf("%d jobs, want 6: %+v", len(jobs), jobs)
	}
	want := []JobStatus{
		{ID: "17", RawID: "17", Name: "pend", State: "PENDING", EndTime: "N/A", TimeLimit: "10:00",
			Reason: "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"},
		{ID: "18_[0,3,6,9%2]", RawID: "18", Name: "arrpend", State: "PENDING", Reason: "Priority",
			EndTime: "2026-11-21T02:14:43", TimeLimit: "10:00"},
		{ID: "14", RawID: "14", Name: "running", State: "RUNNING", Reason: "None",
			EndTime: "2026-11-21T01:34:43", TimeLimit: "10:00"},
	}
	for _, w := range want {
		if !slices.Contains(jobs, w) {
			t.Errorf("not there: %+v\nin %+v", w, jobs)
		}
	}
}

func TestSqueueStatesAreRead(t *testing.T) {
	jobs := parseSqueue(squeueCorpus(t, "cli2/squeue-all-states", "iTrj").Stdout)
	states := map[string]string{}
	for _, j := range jobs {
		states[j.ID] = j.State
		if strings.HasPrefix(j.ID, "8_") && j.Name != "odd name|pipe=eq" {
			t.Errorf("job %s is called %q", j.ID, j.Name)
		}
		if ended := !slices.Contains([]string{"PENDING", "RUNNING", "SUSPENDED"}, j.State); j.Ended() != ended {
			t.Errorf("%s: ended: %t, want %t", j.State, j.Ended(), ended)
		}
	}
	if len(jobs) != 19 || states["13"] != "NODE_FAIL" || states["18_[0,3,6,9%2]"] != "PENDING" || states["6"] != "TIMEOUT" ||
		states["8_2"] != "FAILED" {
		t.Errorf("%d jobs: %v", len(jobs), states)
	}
}

// sacctCorpus converts cli2/sacct-P-parsed into the output of "sacct -X" with this package's format.
func sacctCorpus(t *testing.T) Output {
	t.Helper()
	out := recorded(t, "cli2/sacct-P-parsed")
	var text strings.Builder
	for line := range strings.Lines(string(out.Stdout)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "|")
		name, rest := strings.Join(f[2:len(f)-17], "|"), f[len(f)-17:]
		if strings.Contains(f[1], ".") {
			continue // a step, which -X leaves out
		}
		// State ExitCode Derived NodeList Start End Elapsed ElapsedRaw Submit Timelimit AllocTRES ReqTRES NNodes NTasks Reason Comment
		// WorkDir
		text.WriteString(strings.Join([]string{f[0], f[1], rest[0], rest[14], rest[5], rest[9], name}, separator) + "\n")
	}
	out.Stdout = []byte(text.String())
	return out
}

func TestParseSacctCorpus(t *testing.T) {
	jobs := parseSacct(sacctCorpus(t).Stdout)
	want := []JobStatus{
		{ID: "5", RawID: "5", Name: "exit200", State: "FAILED",
			EndTime: "2026-11-21T01:24:21", TimeLimit: "00:10:00"},
		{ID: "7", RawID: "7", Name: "cancelled", State: "CANCELLED",
			EndTime: "2026-11-21T01:24:23", TimeLimit: "00:10:00"},
	}
	for _, w := range want {
		if !slices.Contains(jobs, w) {
			t.Errorf("not there: %+v\nin %+v", w, jobs)
		}
	}
	i := slices.IndexFunc(jobs, func(s JobStatus) bool { return s.ID == "8_2" })
	if i < 0 || jobs[i].Name != "odd name|pipe=eq" || jobs[i].RawID == "8_2" {
		t.Errorf("job 8_2: %+v", jobs)
	}
}

// withoutFields removes fields, starting at number at, from a recording: when it was made, this package requested more fields.
func withoutFields(out Output, at, fields int) Output {
	var text strings.Builder
	for line := range strings.Lines(string(out.Stdout)) {
		if f := strings.Split(line, separator); len(f) > at+fields {
			line = strings.Join(slices.Delete(f, at, at+fields), separator)
		}
		text.WriteString(line)
	}
	out.Stdout = []byte(text.String())
	return out
}

// For a job that has ended, accounting keeps the reason for which it waited. That is not the reason for its end, so Jobs omits it.
func TestSacctAgreesWithSqueueOnEndedJobs(t *testing.T) {
	before := parseSqueue(withoutFields(recorded(t, "acct/squeue-ended"), 4, 3).Stdout)
	forgotten := map[string]Output{
		"squeue": recorded(t, "cli/squeue-unknown-h"), "sacct": withoutFields(withoutFields(recorded(t, "acct/sacct-ended"), 5, 3), 3, 1),
	}
	jobs, err := (&pretend{answers: forgotten}).client().Jobs(t.Context(), []string{"1", "4", "5", "6", "7", "8"})
	if err != nil || len(jobs) != len(before) || len(jobs) != 9 {
		t.Fatalf("%d jobs of %d: %v", len(jobs), len(before), err)
	}
	for _, want := range before {
		i := slices.IndexFunc(jobs, func(s JobStatus) bool { return s.ID == want.ID })
		if i < 0 {
			t.Errorf("job %s is not there", want.ID)
			continue
		}
		want.Reason, want.TimeLimit = "", "00:"+want.TimeLimit
		if jobs[i] != want {
			t.Errorf("got\n%+v, want\n%+v", jobs[i], want)
		}
	}
}

func TestParseScontrolCorpus(t *testing.T) {
	for file, want := range map[string]JobStatus{
		"cli/scontrol-show-job-running-o": {ID: "56", RawID: "56", Name: "trainjob", State: "RUNNING", Reason: "None",
			EndTime: "2026-11-21T00:39:07", TimeLimit: "00:10:00"},
		"no-acct/scontrol-show-job": {ID: "1", RawID: "1", Name: "wrap", State: "COMPLETED", Reason: "None",
			EndTime: "2026-11-21T01:15:59", TimeLimit: "00:10:00"},
	} {
		jobs := parseScontrol(recorded(t, file).Stdout)
		if len(jobs) != 1 || jobs[0] != want {
			t.Errorf("%s: %+v\nwant %+v", file, jobs, want)
		}
	}
}

// scontrol and squeue printed the same jobs at the same time.
func TestScontrolAgreesWithSqueue(t *testing.T) {
	shown := parseScontrol(recorded(t, "cli2/scontrol-show-job-o").Stdout)
	for _, s := range parseSqueue(squeueCorpus(t, "cli2/squeue-fmt", "iAFKtTrNDCPjlMSek").Stdout) {
		i := slices.IndexFunc(shown, func(o JobStatus) bool { return o.ID == s.ID })
		if i < 0 {
			t.Errorf("scontrol does not show %s", s.ID)
			continue
		}
		o := shown[i]
		// scontrol prints reasons as one word
		if o.Name != s.Name || o.State != s.State || o.RawID != s.RawID {
			t.Errorf("scontrol: %+v\nsqueue: %+v", o, s)
		}
	}
	i := slices.IndexFunc(shown, func(s JobStatus) bool { return s.ID == "8_2" })
	if i < 0 || shown[i].Name != "odd name|pipe=eq" {
		t.Errorf("job 8_2: %+v", shown)
	}
}

func TestJobs(t *testing.T) {
	running := squeueLine(map[byte]string{'i': "14", 'A': "14", 'T': "RUNNING", 'r': "None", 'j': "a|b c"})
	ended := squeueLine(map[byte]string{'i': "5", 'A': "5", 'T': "FAILED", 'r': "NonZeroExitCode", 'j': "exit200"})
	array := squeueLine(map[byte]string{'i': "57_[5-6%2]", 'A': "57", 'T': "PENDING"}) +
		squeueLine(map[byte]string{'i': "57_1", 'A': "61", 'T': "COMPLETED"})
	text := func(s string) Output { return Output{Stdout: []byte(s)} }
	for name, c := range map[string]struct {
		ids     []string
		answers map[string]Output
		want    []string // ID State
		err     error
		asked   []string // the commands, in order
	}{
		"running": {[]string{"14"}, map[string]Output{"squeue": text(running)}, []string{"14 RUNNING"}, nil, []string{"squeue"}},
		"several, in the order asked": {[]string{"5", "14"}, map[string]Output{"squeue": text(running + ended)},
			[]string{"5 FAILED", "14 RUNNING"}, nil, []string{"squeue"}},
		"greeting and cluster's name": {[]string{"14"}, map[string]Output{"squeue": text("Welcome\nCLUSTER: lab\n" + running)},
			[]string{"14 RUNNING"}, nil, []string{"squeue"}},
		"ended": {[]string{"1"}, map[string]Output{"squeue": text(squeueLine(map[byte]string{'i': "1", 'A': "1", 'T': "COMPLETED"}))},
			[]string{"1 COMPLETED"}, nil, []string{"squeue"}},
		"aged out": {[]string{"13"}, map[string]Output{"squeue": recorded(t, "cli/squeue-unknown-h"), "sacct": sacctCorpus(t)},
			[]string{"13 NODE_FAIL"}, nil, []string{"squeue", "sacct"}},
		"element of a pending group": {[]string{"57_5"}, map[string]Output{"squeue": text(array)}, []string{"57_[5-6%2] PENDING"},
			nil, []string{"squeue"}},
		"array: ended elements are added, stale ones not": {[]string{"57"},
			map[string]Output{"squeue": text(array),
				"sacct": text(sacctLine("57_1", "COMPLETED") + sacctLine("57_2", "COMPLETED") + sacctLine("57_[3-6%2]", "PENDING"))},
			[]string{"57_[5-6%2] PENDING", "57_1 COMPLETED", "57_2 COMPLETED"}, nil, []string{"squeue", "sacct"}},
		"unknown": {[]string{"99999"}, map[string]Output{"squeue": recorded(t, "cli/squeue-unknown-h"), "sacct": {}},
			nil, ErrUnknownJob, []string{"squeue", "sacct"}},
		"no such element": {[]string{"57_9"}, map[string]Output{"squeue": text(array), "sacct": recorded(t, "no-acct/sacct")},
			nil, ErrUnknownJob, []string{"squeue", "sacct"}},
		"configuration lost": {[]string{"1"},
			map[string]Output{"sacct": recorded(t, "no-acct/sacct"),
				"squeue": {Code: 1,
					Stderr: []byte("squeue: error: s_p_parse_file: cannot stat file /x: No such file or directory, " +
						"retrying in 1sec up to 60sec\n" +
						"squeue: error: ClusterName needs to be specified\nsqueue: fatal: Unable to process configuration file\n")}}, nil,
			ErrUnreachable, []string{"squeue", "sacct"}},
		"one unknown of two": {[]string{"14", "99999"}, map[string]Output{"squeue": text(running), "sacct": recorded(t, "no-acct/sacct")},
			[]string{"14 RUNNING"}, ErrUnknownJob, []string{"squeue", "sacct"}},
		"no sacct command": {[]string{"99999"}, map[string]Output{"squeue": recorded(t, "cli/squeue-unknown-h")},
			nil, ErrUnknownJob, []string{"squeue", "sacct"}},
		"controller down": {[]string{"99"},
			map[string]Output{"squeue": recorded(t, "ctld-down/squeue"), "sacct": sacctCorpus(t)}, nil, ErrUnreachable,
			[]string{"squeue", "sacct"}},
		"controller down, accounting knows": {[]string{"3"},
			map[string]Output{"squeue": recorded(t, "ctld-down/squeue"), "sacct": sacctCorpus(t)}, []string{"3 FAILED"}, nil,
			[]string{"squeue", "sacct"}},
		"accounting down": {[]string{"99"},
			map[string]Output{"squeue": {},
				"sacct": {Code: 1, Stderr: []byte("sacct: error: Problem talking to the database: Connection refused\n")}}, nil, ErrRefused,
			[]string{"squeue", "sacct"}},
		"no Slurm":      {[]string{"1"}, nil, nil, ErrNoSlurm, []string{"squeue"}},
		"nothing asked": {nil, nil, nil, nil, nil},
	} {
		p := &pretend{answers: c.answers}
		jobs, err := p.client().Jobs(t.Context(), c.ids)
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%s: error %v, want %v", name, err, c.err)
		}
		var got []string
		for _, j := range jobs {
			got = append(got, j.ID+" "+j.State)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		for i, asked := range p.asked {
			p.asked[i], _, _ = strings.Cut(asked, " ")
		}
		if !slices.Equal(p.asked, c.asked) {
			t.Errorf("%s: asked %q, want %q", name, p.asked, c.asked)
		}
	}
}

// If a caller stops while a command answers, it gets the jobs known by then, or the reason why there are none: a job for which no command
// could be run is different from a job that Slurm does not know.
func TestJobsOfACallerThatStops(t *testing.T) {
	stop := errors.New("TERM")
	for command, id := range map[string]string{"squeue": "13", "sacct": "99999"} {
		p := &pretend{answers: map[string]Output{"squeue": {}, "sacct": sacctCorpus(t)}}
		ctx, cancel := context.WithCancelCause(t.Context())
		client := &Client{Run: func(ctx context.Context, c Command) (Output, error) {
			if err := ctx.Err(); err != nil {
				return Output{}, err
			}
			if c.Name == command {
				defer cancel(stop)
			}
			return p.run(ctx, c)
		}}
		if jobs, err := client.Jobs(ctx, []string{id}); len(jobs) != 0 || !errors.Is(err, stop) {
			t.Errorf("stopped by the end of %s: %+v, %v", command, jobs, err)
		}
	}
	running := squeueLine(map[byte]string{'i': "14", 'A': "14", 'T': "RUNNING"})
	ctx, cancel := context.WithCancel(t.Context())
	client := &Client{Run: func(context.Context, Command) (Output, error) {
		cancel()
		return Output{Stdout: []byte(running)}, nil
	}}
	if jobs, err := client.Jobs(ctx, []string{"14"}); len(jobs) != 1 || err != nil {
		t.Errorf("nothing more was to be asked: %+v, %v", jobs, err)
	}
}

func sacctLine(id, state string) string {
	return strings.Join([]string{id, id, state, "0:0", "None", "", "", "name"}, separator) + "\n"
}

func TestJobsAreAskedForByCluster(t *testing.T) {
	p := &pretend{answers: map[string]Output{"squeue": {Stdout: []byte(squeueLine(map[byte]string{'i': "3", 'A': "3", 'T': "RUNNING"}))}}}
	jobs, err := p.client().Jobs(t.Context(), []string{"3;lab", "3"})
	if err != nil || len(jobs) != 2 {
		t.Errorf("%+v, %v", jobs, err)
	}
	want := "squeue --clusters=lab -h -t all -j 3 -o '%i\x1f%A\x1f%T\x1f%r\x1f%e\x1f%l\x1f%j'"
	if len(p.asked) != 2 || strings.Contains(p.asked[0], "clusters") || p.asked[1] != want {
		t.Errorf("asked %q; want %q second", p.asked, want)
	}
	if _, err := p.client().Jobs(t.Context(), []string{"3", "--me"}); err == nil {
		t.Error("an option was taken for a job id")
	}
}

// All commands of a Client for a cluster go to that cluster, unless an id names another one.
func TestOnAsksACluster(t *testing.T) {
	p := &pretend{answers: map[string]Output{"sbatch": {Stdout: []byte("3;lab\n")}, "squeue": {}, "scancel": {}, "scontrol": {}}}
	base := p.client()
	lab := base.On("lab")
	id, err := base.On("lab,new").Submit(t.Context(), "/s", nil)
	if want := (JobID{ID: "3", Cluster: "lab"}); err != nil || id != want {
		t.Errorf("submitted %v, %v; want %v", id, err, want)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(lab.CancelNow(t.Context(), "3"))
	must(lab.CancelNow(t.Context(), "4;new"))
	must(lab.CancelNow(t.Context(), "7", "8;lab"))
	if err := lab.CancelNow(t.Context(), "7", "8;new"); err == nil {
		t.Error("one command was to cancel on two clusters")
	}
	must(lab.Requeue(t.Context(), "3"))
	_, err = lab.UserJobs(t.Context(), "")
	must(err)
	must(base.CancelNow(t.Context(), "5"))
	must(lab.On("").CancelNow(t.Context(), "6"))
	want := []string{
		"sbatch --clusters=lab,new --parsable /s", "scancel --clusters=lab 3", "scancel --clusters=new 4", "scancel --clusters=lab 7 8",
		"scontrol --clusters=lab requeue 3",
		"squeue --clusters=lab -h -t all --me", "scancel 5", "scancel 6",
	}
	if len(p.asked) != len(want) {
		t.Fatalf("asked %q, want %q", p.asked, want)
	}
	for i := range want {
		if !strings.HasPrefix(p.asked[i], want[i]) {
			t.Errorf("asked %q, want %q", p.asked[i], want[i])
		}
	}
}

func FuzzClientOutput(f *testing.F) {
	for _, name := range []string{"cli2/scontrol-show-job-o.stdout", "cli2/squeue-fmt.stdout", "sbatch-errors/bad-partition.stderr",
		"cli/sbatch-parsable-cluster.stdout"} {
		data, err := os.ReadFile(filepath.Join(corpus, name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(sacctLine("1", "COMPLETED")))
	f.Add([]byte(squeueLine(map[byte]string{'i': "12_[3-6%2]", 'T': "PENDING"})))
	f.Fuzz(func(t *testing.T, data []byte) {
		if id, found := parseParsable(data); found {
			if back, err := ParseJobID(id.String()); err != nil || back != id {
				t.Fatalf("%q gave the id %+v, which reads back as %+v (%v)", data, id, back, err)
			}
		}
		if words := slurmWords(data); strings.ContainsAny(words, "\n\r\x1b\x00") || len(words) > maxWords+3 {
			t.Fatalf("%q became the words %q", data, words)
		}
		for _, parse := range []func([]byte) []JobStatus{parseSqueue, parseSacct, parseScontrol} {
			jobs := parse(data)
			for _, j := range jobs {
				if !j.Of(j.ID) || j.ID == "" && j.RawID != "" {
					t.Fatalf("%q gave %+v, which is not found by its own id", data, j)
				}
			}
			if len(jobs) > strings.Count(string(data), "\n")+1 {
				t.Fatalf("%q gave %d jobs", data, len(jobs))
			}
		}
	})
}
