package blame

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/txtar"
)

// knownLog is a log of testdata/causes.txtar.
type knownLog struct {
	name, cause, source, error string
	lines                      []string
}

// deathOf returns the death of a rank that left the given log.
func deathOf(lines []string) Death { return Death{Host: "n1", Exit: 1, Tail: Words(splitOut(lines))} }

// splitOut splits a log at the line that marks the beginning of standard output.
func splitOut(lines []string) (errs, outs []string) {
	for i, line := range lines {
		if line == "[standard output]" {
			return lines[:i], lines[i+1:]
		}
	}
	return lines, nil
}

func knownLogs(t testing.TB) (logs []knownLog) {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "causes.txtar"))
	must(t, err)
	for _, file := range archive.Files {
		head, body, ok := strings.Cut(string(file.Data), "\n\n")
		log := knownLog{name: file.Name, lines: strings.Split(strings.TrimSuffix(body, "\n"), "\n")}
		for line := range strings.Lines(head) {
			key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch key {
			case "cause":
				log.cause = value
			case "source":
				log.source = value
			case "error":
				log.error = value
			default:
				t.Fatalf("%s: %q is not a heading", file.Name, line)
			}
		}
		if !ok || log.cause == "" || log.source == "" {
			t.Fatalf("%s has no cause, source or log", file.Name)
		}
		logs = append(logs, log)
	}
	return logs
}

func ordinaryLogs(t testing.TB) (logs [][]string) {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("testdata", "ordinary.txtar"))
	must(t, err)
	for _, file := range archive.Files {
		logs = append(logs, strings.Split(strings.TrimSuffix(string(file.Data), "\n"), "\n"))
	}
	return logs
}

// Find finds each message at the end of a log and in PyTorch's error file, even if ranks label their lines, and whatever an ordinary log
// has before it.
func TestMessagesAreKnown(t *testing.T) {
	logs, ordinary := knownLogs(t), ordinaryLogs(t)
	seen := map[string]bool{}
	for _, log := range logs {
		seen[log.cause] = true
		got := Find(deathOf(log.lines))
		if got.Name != log.cause || log.error != "" && got.Error != log.error || got.Error == "" {
			t.Errorf("%s: %q, of %q; want %q, of %q", log.name, got.Name, got.Error, log.cause, log.error)
		}
		if labelled := Find(deathOf(labelled(3, log.lines))); labelled.Name != log.cause &&
			!strings.Contains(log.lines[0], "ProcessGroupNCCL") {
			t.Errorf("%s, labelled: %q", log.name, labelled.Name)
		}
		named := lastWords(deathOf(log.lines)).error != ""
		for i, before := range ordinary {
			switch {
			case !named && lastWords(deathOf(before)).error != "": // the ordinary log already names an error
				continue
			case strings.Contains(before[0], "port error") && vague(log.cause): // the ordinary log already explains the error
				continue
			}
			if got := Find(deathOf(append(before[:len(before):len(before)], log.lines...))); got.Name != log.cause {
				t.Errorf("%s after the ordinary log %d: %q, of %q", log.name, i+1, got.Name, got.Error)
			}
		}
		if text := strings.Join(log.lines, "\n"); strings.HasPrefix(text, tracebackHead) {
			d := Death{Host: "n1", Exit: 1, ErrorFile: &TorchError{Message: "see py_callstack", Stack: text}}
			if got := Find(d); got.Name != log.cause {
				t.Errorf("%s, in an error file: %q", log.name, got.Name)
			}
		}
	}
	for _, r := range table() {
		if !seen[r.Name] {
			t.Errorf("no log has %q", r.Name)
		}
	}
	if len(logs) < 50 || len(ordinary) < 20 {
		t.Errorf("%d logs and %d ordinary ones", len(logs), len(ordinary))
	}
}

// vague reports whether errors of a cause are explained by what NCCL and the driver have said before.
func vague(cause string) bool {
	r := knownAs(cause).row
	return r.vague == besideGPU || r.in == besideGPU && cause == "InfiniBand link"
}

func TestOrdinaryLogsMatchNothing(t *testing.T) {
	for i, lines := range ordinaryLogs(t) {
		if got := Find(deathOf(lines)); got.Name != "" {
			t.Errorf("log %d: %q, of %q", i+1, got.Name, got.Error)
		}
	}
}

// The rows are as the rest of the program expects: names are unique, advice is one line, and only causes of the infrastructure blame a
// node.
func TestTableOfCauses(t *testing.T) {
	names := map[string]bool{}
	for _, r := range table() {
		switch {
		case names[r.Name]:
			t.Errorf("%q stands there twice", r.Name)
		case r.Advice == "" || strings.Contains(r.Advice, "\n") || len(r.Advice) > 150 || strings.HasSuffix(r.Advice, "."):
			t.Errorf("%q: %q is not advice", r.Name, r.Advice)
		case r.Node && (r.Class != Infrastructure || r.Final):
			t.Errorf("%q is %+v", r.Name, r.KnownCause)
		case r.pattern.NumSubexp() > 1, r.pattern.MatchString(""), r.pattern.MatchString("step 12 loss 0.5"):
			t.Errorf("%q: the pattern %v", r.Name, r.pattern)
		case strings.Contains(r.Advice, "{1}") != (r.pattern.NumSubexp() == 1) && r.Name != "missing name in a module":
			t.Errorf("%q: what does %q name?", r.Name, r.Advice)
		}
		names[r.Name] = true
	}
}

func TestFindOfOtherEnds(t *testing.T) {
	boomed, quota := raised(boom), raised("OSError: [Errno 122] Disk quota exceeded")
	const noSpace = "OSError: [Errno 28] No space left on device"
	for name, test := range map[string]struct {
		death Death
		cause string
		error string
		trace bool
	}{
		"nothing is known":     {Death{Exit: 1, Tail: boomed}, "", boom, true},
		"no words":             {Death{Exit: 1}, "", "", false},
		"it ended well":        {Death{Tail: boomed}, "", "", false},
		"it saved":             {Death{Exit: 75, Tail: raised("RuntimeError: CUDA out of memory")}, "", "", false},
		"it was told to":       {Death{Signal: term, Stopping: true, Tail: []string{"bye"}}, "", "", false},
		"it lost a peer":       {Death{Exit: 1, Tail: raised(gone)}, "", gone, false},
		"the kernel killed it": {Death{Signal: kill, OOM: "oom_kill went from 0 to 1"}, hostMemory, "", false},
		"the first of a chain": {Death{Exit: 1, Tail: during(quota, raised("SaveError: nothing"))}, "quota",
			"SaveError: nothing", false},
		"infrastructure is not a bug": {Death{Exit: 1, Tail: raised(noSpace)}, "file system full", noSpace, false},
		"a line below the first":      {Death{Exit: 1, Tail: raised("KeyError: 'x'", noSpace)}, "file system full", "KeyError: 'x'", false},
	} {
		got := Find(test.death)
		if got.Name != test.cause || got.Error != test.error || (got.Trace != "") != test.trace {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// The advice for a rank that KILL ended says that it may have run out of memory, even if nothing counted that. If the rank's own agent
// killed it, there is no advice.
func TestAdviceForARankThatWasKilled(t *testing.T) {
	for advice, d := range map[string]Death{killAdvice: {Signal: kill}, "": {Signal: kill, Stopping: true}} {
		if got := Find(d); got.Advice != advice || got.Name != "" || got.Final || got.Class != "" {
			t.Errorf("%+v: %+v", d, got)
		}
	}
}

// The advice for a missing module names the Python interpreter if it is known.
func TestAdviceNamesPython(t *testing.T) {
	d := Death{Exit: 1, Tail: raised("ModuleNotFoundError: No module named 'torch.utils'")}
	if got := Find(d).Advice; !strings.HasPrefix(got, "the python3 of the workers has no module torch.utils: ") {
		t.Error(got)
	}
	d.Python = "/opt/venv/bin/python3\x1b[31m"
	if got := Find(d).Advice; !strings.HasPrefix(got, "/opt/venv/bin/python3 has no module torch.utils: ") {
		t.Error(got)
	}
	if !LacksModule(d) || LacksModule(Death{Exit: 1, Tail: raised(boom)}) {
		t.Error("whether a module is missing is not known")
	}
}

// Advice does not name modules and environments of [setup] if the rank does not see them: in a container, and on a pretend node.
func TestAdviceFitsWhereTheRankRuns(t *testing.T) {
	for _, log := range knownLogs(t) {
		contained, simulated := deathOf(log.lines), deathOf(log.lines)
		contained.Contained, simulated.Simulated = true, true
		for _, d := range []Death{contained, simulated} {
			if got := Find(d); strings.Contains(got.Advice, "setup.modules") || got.Name != log.cause {
				t.Errorf("%s: %q, %q", log.name, got.Name, got.Advice)
			}
		}
	}
}

// The trace of an exception does not depend on what differs between attempts. It differs if the exception was raised elsewhere or has
// another text.
func TestTraceOfAnException(t *testing.T) {
	trace := func(line, exception string) string {
		lines := []string{tracebackHead, `  File "train.py", line ` + line + `, in <module>`, "    main()", exception}
		return Find(Death{Exit: 1, Tail: lines}).Trace
	}
	same := trace("9", "ValueError: port 29500 of <Net object at 0x7f12ab> at 12.5 s")
	if same == "" || same != trace("9", "ValueError: port 31111 of <Net object at 0x55ee0012cd> at 3.25 s") {
		t.Error("the same exception has two traces")
	}
	elsewhere := trace("10", "ValueError: port 29500 of <Net object at 0x7f12ab> at 12.5 s")
	another := trace("9", "ValueError: port of <Net>")
	for _, other := range []string{elsewhere, another} {
		if other == same || other == "" {
			t.Errorf("another exception has the trace %q", other)
		}
	}
	if got := Find(Death{Exit: 1, Tail: []string{"ValueError: boom"}}).Trace; got != "" {
		t.Errorf("without a traceback: %q", got)
	}
}

// FuzzFind checks that, whatever a rank has printed, the result is bounded, cannot control a terminal, and is a row of the table that
// matches a line of the text.
func FuzzFind(f *testing.F) {
	for _, log := range knownLogs(f) {
		f.Add(strings.Join(log.lines, "\n"), 1, false)
	}
	for _, lines := range ordinaryLogs(f) {
		f.Add(strings.Join(lines, "\n"), -9, true)
	}
	f.Add("[rank3]: \x1b]0;x\x07ModuleNotFoundError: No module named 'a\u202eb'", 1, true)
	trace := regexp.MustCompile(`^([0-9a-f]{16})?$`)
	f.Fuzz(func(t *testing.T, text string, code int, stopping bool) {
		d := Death{Exit: max(code, 0), Signal: max(-code, 0), Stopping: stopping, Python: text,
			Tail: Words(splitOut(strings.Split(text, "\n")))}
		for _, d := range []Death{d, {Exit: 1, ErrorFile: &TorchError{Message: text, Stack: text}}} {
			got := Find(d)
			for _, said := range []string{got.Error, got.Advice} {
				unsafe := strings.ContainsFunc(said, func(r rune) bool { return !unicode.IsPrint(r) })
				if !utf8.ValidString(said) || utf8.RuneCountInString(said) > maxFound || unsafe {
					t.Fatalf("%q does something to a terminal, or is too long", said)
				}
			}
			if !trace.MatchString(got.Trace) || got.Trace != "" && got.Class == Infrastructure {
				t.Fatalf("%+v", got)
			}
			if got.Name == "" {
				continue
			}
			said := strings.Join(append(d.Tail, strings.Split(text, "\n")...), "\n")
			if r := knownAs(got.Name).row; !matchesLine(r, said) {
				t.Fatalf("%+v of %q", got, text)
			}
		}
	})
}

func matchesLine(r row, text string) bool {
	for line := range strings.SplitSeq(text, "\n") {
		if r.pattern.MatchString(rankLabel().ReplaceAllString(line, "")) {
			return true
		}
	}
	return false
}

// The documentation has all rows of the table and no others.
func TestTableOfCausesIsDocumented(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "concepts", "recovery.md"))
	must(t, err)
	_, section, _ := strings.Cut(string(text), "\n## What the last words say\n")
	section, _, _ = strings.Cut(section, "\n## ")
	fill := strings.NewReplacer("{1}", "X", "{python}", "PYTHON")
	for _, r := range table() {
		follows := "may help"
		switch {
		case r.Final:
			follows = "does not help"
		case r.Node:
			follows = "without the node"
		}
		want := "| " + r.Name + " | " + string(r.Class) + " | " + follows + " | " + fill.Replace(r.Advice) + " |"
		for _, other := range []string{r.containerAdvice, r.simulateAdvice} {
			if other != "" && !strings.Contains(section, "\n- **"+r.Name+"**: "+fill.Replace(other)+"\n") {
				t.Errorf("docs/concepts/recovery.md lacks other advice for %q: %q", r.Name, other)
			}
		}
		if !strings.Contains(section, want+"\n") {
			t.Errorf("docs/concepts/recovery.md lacks the row\n%s", want)
		}
	}
	if rows := strings.Count(section, "\n|"); rows != len(table())+2 {
		t.Errorf("docs/concepts/recovery.md has %d rows under two of heading, and the table has %d", rows-2, len(table()))
	}
}

func BenchmarkFind(b *testing.B) {
	ordinary := ordinaryLogs(b)[0]
	var lines []string
	for len(lines) < wordsLines {
		lines = append(lines, ordinary...)
	}
	d := deathOf(append(lines, "CUDA is not what failed"))
	for b.Loop() {
		Find(d)
	}
}
