package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
	"ddpbatch/internal/runview"
	"ddpbatch/internal/testkit/fakeslurm"
	"ddpbatch/slurm"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// pageOf returns the data of a report on a run, and its page.
func pageOf(t *testing.T, world *fakeslurm.Slurm, run *rundir.Dir) (*Data, string) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	viewer := &runview.Viewer{
		Slurm: &slurm.Client{Environ: world.Environ(0, 0)}, Now: func() time.Time { return noon.Add(24 * time.Hour) },
		From: "/", Out: io.Discard, Err: io.Discard, Log: log,
	}
	d, err := Request{Viewer: viewer, Version: "v1", Log: log}.Of(t.Context(), run)
	must(t, err)
	if _, err := json.Marshal(d); err != nil {
		t.Error(err)
	}
	var page bytes.Buffer
	must(t, d.Write(&page))
	return d, page.String()
}

// TestPageOfAnyRun: incomplete run directories, and runs about which little is known, have a page that says so.
func TestPageOfAnyRun(t *testing.T) {
	write := func(path func(*rundir.Dir) string, text string) func(t *testing.T, run *rundir.Dir) {
		return func(t *testing.T, run *rundir.Dir) { must(t, os.WriteFile(path(run), []byte(text), 0o600)) }
	}
	inRun := func(name string) func(*rundir.Dir) string {
		return func(run *rundir.Dir) string { return filepath.Join(run.Path(), name) }
	}
	begun := func(t *testing.T, run *rundir.Dir) {
		n, err := run.ClaimAttempt()
		must(t, err)
		must(t, run.Append(rundir.Event{Time: noon, Event: rundir.EventBegin, Attempt: n, Job: "12"}))
	}
	for _, test := range []struct {
		name string
		make func(t *testing.T, run *rundir.Dir)
		want string
	}{
		{"never started", func(*testing.T, *rundir.Dir) {}, "no attempt has begun"},
		{"a command", begun, "nobody has written metrics.jsonl"},
		{"an attempt of less than a second", func(t *testing.T, run *rundir.Dir) {
			begun(t, run)
			must(t, run.Append(rundir.Event{Time: noon.Add(350 * time.Millisecond), Event: rundir.EventEnd, Attempt: 1, Cause: "crash"}))
		}, `<td class="tight">0.35 s</td>`},
		{"no attempts folder", func(t *testing.T, run *rundir.Dir) { must(t, os.RemoveAll(inRun("attempts")(run))) },
			"no attempt has begun"},
		{"rubbish metrics", write((*rundir.Dir).MetricsPath, "a\n\x00\xff\n{\"x\":\n"), "3 lines of metrics.jsonl could not be read"},
		{"words for metrics", write((*rundir.Dir).MetricsPath, `{"x":"y"}`), "metrics.jsonl has no line with a number"},
		{"only NaN", write((*rundir.Dir).MetricsPath, `{"step":3,"loss":NaN}`), "1 value is NaN or infinite, the first by step 3"},
		{"one value", write((*rundir.Dir).MetricsPath, `{"step":3,"loss":1e308}`+"\n"+`{"step":4,"loss":-1e308}`), "Loss"},
		{"rubbish step times", write((*rundir.Dir).StepTimesPath, "{\"attempt\":1,\"step_s\":[1]}\nx"), "no attempt has begun"},
		{"rubbish ledger", write(inRun("ledger.jsonl"), "{\"event\":\"end\",\"attempt\":-5}\n{\"event\":\"begin\",\"attempt\":7}\nx"),
			"not known"},
		{"rubbish job file", write((*rundir.Dir).JobFilePath, "TOKEN = \"abc\" ["), "read the job&#39;s settings: "},
		{"a folder for metrics", func(t *testing.T, run *rundir.Dir) { must(t, os.Mkdir(run.MetricsPath(), 0o700)) },
			"What could not be read is left out"},
		{"a cut verdict", func(t *testing.T, run *rundir.Dir) {
			begun(t, run)
			must(t, os.WriteFile(inRun("attempts/1/verdict.json")(run), []byte(`{"attempt":1,"cau`), 0o600))
		}, "not known"},
		{"a verdict alone", func(t *testing.T, run *rundir.Dir) {
			begun(t, run)
			must(t, run.WriteVerdict(rundir.Verdict{Attempt: 1, Cause: "crash", Exit: 3, Message: "rank 0 & all",
				Time: noon.Add(time.Hour)}))
		}, "rank 0 &amp; all"},
		{"saves of its own", func(t *testing.T, run *rundir.Dir) {
			must(t, os.WriteFile(filepath.Join(run.CheckpointsPath(), "last<1>.pt"), make([]byte, 3<<20), 0o600))
		}, `<td>last&lt;1&gt;.pt</td>`},
		{"much of nothing", func(t *testing.T, run *rundir.Dir) {
			must(t, os.WriteFile(run.MetricsPath(), nil, 0o600))
			must(t, os.Truncate(run.MetricsPath(), 400<<20))
		}, "metrics.jsonl has 400 MiB, of which 384 MiB were read"},
	} {
		t.Run(test.name, func(t *testing.T) {
			world, run := fakeslurm.New(t), fakeslurm.Run(t, "")
			test.make(t, run)
			if _, page := pageOf(t, world, run); !strings.Contains(page, test.want) {
				t.Errorf("the page does not say %q:\n%s", test.want, page[strings.Index(page, "<body>"):])
			}
		})
	}
}

// The head of the page says how the run ended, in the words of the column REASON of status, with the exception and what to do.
func TestHeadHasTheException(t *testing.T) {
	world, run := fakeslurm.New(t), fakeslurm.Run(t, "")
	must(t, run.SetJobID("12"))
	_, err := run.ClaimAttempt()
	must(t, err)
	must(t, run.WriteVerdict(rundir.Verdict{Attempt: 1, JobID: "12", Cause: "crash", Exit: 1, Time: noon, Error: "MemoryError",
		Message: "rank 2 on n2 exited with code 1; its last words are in /runs/n2.2.err", Advice: "ask for more"}))
	world.QueueOf(run, "12 FAILED NonZeroExitCode")
	const want = "<p>rank 2 on n2 exited with code 1: MemoryError (hint: ask for more)</p>"
	if _, page := pageOf(t, world, run); !strings.Contains(page, want) {
		t.Errorf("the page does not say %q:\n%s", want, page[strings.Index(page, "<body>"):])
	}
}

// A run whose job waits again does not run: its time is that of the attempts before.
func TestTimeOfARunThatWaits(t *testing.T) {
	world, run := fakeslurm.New(t), fakeslurm.Run(t, "")
	must(t, run.SetJobID("12"))
	_, err := run.ClaimAttempt()
	must(t, err)
	for _, e := range []rundir.Event{
		{Time: noon, Event: rundir.EventSubmit, Job: "12"},
		{Time: noon, Event: rundir.EventBegin, Attempt: 1, Job: "12"},
		{Time: noon.Add(time.Minute), Event: rundir.EventEnd, Attempt: 1, Job: "12", Cause: "crash"},
		{Time: noon.Add(time.Hour), Event: rundir.EventResume, Job: "13"},
	} {
		must(t, run.Append(e))
	}
	must(t, run.SetJobID("13"))
	for state, want := range map[string]string{"13 PENDING Priority": "<dt>ran</dt>", "13 RUNNING None": "<dt>running</dt>"} {
		world.QueueOf(run, state)
		if _, page := pageOf(t, world, run); !strings.Contains(page, want) {
			t.Errorf("%s: the page does not say %q:\n%s", state, want, page[strings.Index(page, "<body>"):])
		}
	}
}

const hostile = `</text></svg></pre><script>alert("x")</script><img src=x onerror=alert(1)>`

// TestPageIsHarmless: whatever names and messages the files of a run hold, the page shows them as text.
func TestPageIsHarmless(t *testing.T) {
	world, run := fakeslurm.New(t), fakeslurm.Run(t, fmt.Sprintf("[setup.env]\nA = %q\n", hostile))
	_, err := run.ClaimAttempt()
	must(t, err)
	for _, e := range []rundir.Event{
		{Event: rundir.EventBegin, Attempt: 1, Job: hostile, Detail: hostile}, {Event: hostile, Detail: hostile},
		{Event: rundir.EventEnd, Attempt: 1, Cause: hostile, Node: hostile, Nodes: []string{hostile}, Detail: hostile},
		{Event: rundir.EventRequeue, Attempt: 1, Detail: hostile},
	} {
		e.Time = noon
		must(t, run.Append(e))
	}
	must(t, run.WriteVerdict(rundir.Verdict{Attempt: 1, Cause: hostile, Host: hostile, Message: hostile, Report: hostile, Time: noon}))
	name, err := json.Marshal(hostile)
	must(t, err)
	must(t, os.WriteFile(run.MetricsPath(), fmt.Appendf(nil, `{"attempt":1,"step":1,%s:1}`+"\n"+`{"step":2,%[1]s:2,"time":%[1]s}`, name),
		0o600))
	_, err = run.AppendStepTimes(rundir.StepTimes{
		Time: noon, Attempt: 1, Step: 5, WindowS: 1, Hosts: []string{hostile}, StepS: rundir.Seconds{1},
		Stragglers: []rundir.Straggler{{Host: hostile, Times: 2, Part: hostile}},
	}, 0)
	must(t, err)
	d, page := pageOf(t, world, run)
	for _, never := range []string{"<script", "<img", "</text></svg></pre>"} {
		if strings.Contains(page, never) {
			at := strings.Index(page, never)
			t.Errorf("the page holds %q: ...%s", never, page[max(0, at-200):at+50])
		}
	}
	if n := strings.Count(page, "&lt;script&gt;"); n < 12 {
		t.Errorf("the text is in the page %d times: not all of what the files say is shown", n)
	}
	if len(d.Metrics.Curves) != 1 || d.Steps == nil {
		t.Errorf("the files were not read: %+v", d.Metrics)
	}
}

// TestPageHidesSecrets: the page hides secrets in the environment, in commands, and in a job file that can no longer be read.
func TestPageHidesSecrets(t *testing.T) {
	world := fakeslurm.New(t)
	run := fakeslurm.Run(t, "[setup.env]\nHF_TOKEN = \"hf_0123456789\"\nKIND = \"plain\"\n")
	d, page := pageOf(t, world, run)
	if strings.Contains(page, "hf_0123456789") || !strings.Contains(page, "HF_TOKEN=***") || !strings.Contains(page, "KIND=plain") {
		t.Errorf("the settings are %+v", d.Settings)
	}
	data, err := json.Marshal(d)
	if err != nil || strings.Contains(string(data), "hf_0123456789") {
		t.Errorf("the token is in the JSON, %v", err)
	}
	for name, file := range map[string]string{
		"commands": "[launch]\ncommand = [\"true\", \"--token\", \"hf_0123456789\"]\ncheck = [[\"curl\", " +
			"\"--token\", \"hf_0123456789\"]]\n",
		"unreadable": "\"HF_TOKEN\" = \"hf_0123456789\"\ncommand = [\"--token\", \"hf_0123456789\"]\n[",
	} {
		must(t, os.WriteFile(run.JobFilePath(), []byte(file), 0o600))
		if _, page := pageOf(t, world, run); strings.Contains(page, "hf_0123456789") {
			t.Errorf("%s: the token is in the page", name)
		}
	}
}

// TestPageStaysSmall: a page with the largest possible number of curves, attempts and ranks has less than 2 MB.
func TestPageStaysSmall(t *testing.T) {
	var text bytes.Buffer
	for i := range 20_000 {
		fmt.Fprintf(&text, `{"attempt":%d,"step":%d,"loss":%g`, i/100, i, math.Sin(float64(i)))
		for name := range maxCurves {
			fmt.Fprintf(&text, `,"metric%d":%g`, name, math.Sin(float64(i*(name+1))))
		}
		text.WriteString("}\n")
	}
	d := &Data{Made: noon, Metrics: read(t, text.String())}
	var lines []rundir.StepTimes
	for i := range 300 {
		line := rundir.StepTimes{Time: noon, Attempt: 1, Step: int64(i), WindowS: 1}
		for rank := range 1024 {
			line.StepS = append(line.StepS, 1+math.Abs(math.Sin(float64(i*rank)))*3)
			line.Hosts = append(line.Hosts, fmt.Sprintf("node%d", rank/4))
		}
		lines = append(lines, line)
	}
	d.Steps = stepTimesOf(lines)
	for i := range maxAttempts {
		at := noon.Add(time.Duration(i) * time.Minute)
		d.Attempts = append(d.Attempts, Attempt{Attempt: i + 1, Began: &at, Ended: &at, Cause: "crash", Message: strings.Repeat("m", 300)})
	}
	var page bytes.Buffer
	must(t, d.Write(&page))
	if page.Len() > 2_000_000 || strings.Count(page.String(), `class="plot"`) != maxCurves+1 {
		t.Errorf("the page has %d bytes and %d curves", page.Len(), strings.Count(page.String(), `class="plot"`))
	}
}

// TestReportsReplaceReports: a page replaces an older page, and nothing else.
func TestReportsReplaceReports(t *testing.T) {
	d := &Data{Made: noon}
	dir := t.TempDir()
	mine, page := filepath.Join(dir, "notes.html"), filepath.Join(dir, "page.html")
	must(t, os.WriteFile(mine, []byte("<html>"), 0o600))
	for _, path := range []string{mine, dir} {
		if err := d.Save(t.Context(), path); err == nil {
			t.Errorf("%s was replaced", path)
		}
	}
	if err := d.Save(t.Context(), mine); !errors.Is(err, ErrNotOurs) {
		t.Errorf("notes are replaced: %v", err)
	}
	for range 2 {
		must(t, d.Save(t.Context(), page))
	}
	if text, err := os.ReadFile(mine); err != nil || string(text) != "<html>" {
		t.Errorf("notes became %q, %v", text, err)
	}
}
