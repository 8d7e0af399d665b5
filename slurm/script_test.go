package slurm

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// goldenScripts are the scripts of testdata, each of which a person has checked.
var goldenScripts = map[string]Script{
	"agent": {
		Name: "mnist", RunDir: "/home/ann/runs/mnist-20260101-120000-ab12", WorkDir: "/home/ann/train",
		Nodes: 2, Mode: "agent", Nproc: 4, Requeue: true, Lead: 2 * time.Minute, Grace: time.Minute,
		Options: Options{List: []Option{{Name: "partition", Value: "gpu"}, {Name: "nodes", Value: "2"}, {Name: "gpus-per-node", Value: "4"},
			{Name: "time", Value: "01:00:00"}}},
	},
	"agent-setup": {
		Name: "it's #1", RunDir: `/scratch/ann b/100%/"runs"/x`, WorkDir: "/home/ann/$HOME",
		Nodes: 3, Mode: "agent", Nproc: 4, CPUsPerRank: 6,
		Options: Options{
			List: []Option{{Name: "array", Value: "1-10%2"}, {Name: "cpus-per-task", Value: "6"}, {Name: "mem", Value: "32G"},
				{Name: "exclusive", Flag: true},
				{Name: "comment", Value: `say "hi" #2 \ $(reboot)`}, {}},
			Extra: []string{"--switches=1", "--site-note=a b", "-x n1"},
			Skip:  []string{"--mem", "switches=1"},
		},
		Setup: Setup{Modules: []string{"python/3.8", "cuda 11"}, Venv: "~/my venv/",
			Script: []string{"source env.sh", "if true; then", "  export A='{{.Name}}'", "fi"}},
	},
	"task": {
		Name: "mpi", RunDir: "/r/mpi", WorkDir: "/r", Nodes: 2, Mode: "task", Nproc: 8, CPUsPerRank: 2,
		Options: Options{Skip: []string{"cpu_bind"}}, Setup: Setup{Conda: "/opt/envs/my env"},
	},
	"het": {
		Name: "het", RunDir: "/home/ann b/runs/het", WorkDir: "/home/ann", Nodes: 1, LeastNodes: 1, Mode: "agent", Nproc: 2,
		Requeue: true, Lead: time.Minute,
		Options: Options{
			List:  []Option{{Name: "nodes", Value: "1"}, {Name: "gpus-per-node", Value: "2"}, {Name: "time", Value: "10"}},
			Extra: []string{"--switches=1"}, Skip: []string{"mem"},
		},
		Components: []Component{
			{Nodes: 4, Nproc: 8, CPUsPerRank: 2, Options: Options{
				List: []Option{
					{Name: "nodes", Value: "4"}, {Name: "cpus-per-task", Value: "2"}, {Name: "constraint", Value: "a b"},
					{Name: "mem", Value: "1G"},
				},
			}},
			{Nodes: 1, Nproc: 1},
		},
	},
}

func batchTemplate(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "templates", "batch.sh.tmpl"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func render(t testing.TB, s Script) string {
	t.Helper()
	text, err := s.Render(batchTemplate(t))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestRenderGolden(t *testing.T) {
	for name, script := range goldenScripts {
		got := render(t, script)
		path := filepath.Join("testdata", "script-"+name+".sh")
		if *update {
			write(t, path, got)
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: differs from %s (go test -run Golden -update writes it anew):\n%s", name, path, got)
		}
		if out, err := exec.Command("bash", "-n", path).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("bash -n %s: %v %s", path, err, out)
		}
	}
}

// directives returns the options that Slurm would read from a script.
func directives(t testing.TB, text string) []string {
	t.Helper()
	var words []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != "" {
			break // Slurm stops at the first command
		}
		if rest, found := strings.CutPrefix(line, "#SBATCH"); found {
			more, err := readDirective(rest)
			if err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			words = append(words, more...)
		}
	}
	return words
}

func TestRenderWritesDirectivesSbatchReads(t *testing.T) {
	want := map[string][]string{
		"agent": {"--job-name=mnist", "--output=/home/ann/runs/mnist-20260101-120000-ab12/slurm-%j.log", "--open-mode=append",
			"--chdir=/home/ann/train", "--nodes=2", "--ntasks-per-node=4", "--requeue", "--signal=B:USR2@120", "--partition=gpu",
			"--gpus-per-node=4", "--time=01:00:00"},
		"agent-setup": {"--job-name=it's #1", `--output=/scratch/ann b/100%%/"runs"/x/slurm-%A_%a.log`, "--open-mode=append",
			"--chdir=/home/ann/$HOME", "--nodes=3", "--ntasks-per-node=1", "--cpus-per-task=24", "--array=1-10%2", "--exclusive",
			`--comment=say "hi" #2 \ $(reboot)`, "--site-note=a b", "-x n1"},
		"task": {"--job-name=mpi", "--output=/r/mpi/slurm-%j.log", "--open-mode=append", "--chdir=/r",
			"--nodes=2", "--ntasks-per-node=8", "--cpus-per-task=2"},
		"het": {"--job-name=het", "--output=/home/ann b/runs/het/slurm-%j.log", "--open-mode=append", "--chdir=/home/ann",
			"--nodes=1", "--ntasks-per-node=2", "--requeue", "--signal=B:USR2@60", "--gpus-per-node=2", "--time=10", "--switches=1",
			"hetjob", "--nodes=4", "--ntasks-per-node=1", "--cpus-per-task=16", "--constraint=a b",
			"hetjob", "--nodes=1", "--ntasks-per-node=1"},
	}
	for name, script := range goldenScripts {
		if got := directives(t, render(t, script)); !slices.Equal(got, want[name]) {
			t.Errorf("%s:\n got %q\nwant %q", name, got, want[name])
		}
	}
}

// If the job does not request cores, each rank of a node gets one in either mode. Slurm's own default is one for each task, and in agent
// mode a node has one task.
func TestRenderAsksForACorePerRank(t *testing.T) {
	list := func(options ...Option) func(*Script) { return func(s *Script) { s.Options.List = options } }
	for name, c := range map[string]struct {
		change func(*Script)
		want   []string
	}{
		"agent":           {func(*Script) {}, []string{"--cpus-per-task=4"}},
		"whole nodes":     {list(Option{Name: "exclusive", Flag: true}), []string{"--cpus-per-task=4"}},
		"one rank":        {func(s *Script) { s.Nproc = 1 }, nil},
		"as many as GPUs": {func(s *Script) { s.Nproc = 0 }, nil},
		"cores asked":     {func(s *Script) { s.CPUsPerRank = 2 }, []string{"--cpus-per-task=8"}},
		"fewer asked":     {list(Option{Name: "overcommit", Flag: true}), nil},
		"the user's own":  {list(Option{Name: "mincpus", Value: "9"}), []string{"--mincpus=9"}},
		"cores per GPU":   {list(Option{Name: "cpus-per-gpu", Value: "2"}), []string{"--cpus-per-gpu=2"}},
		"the same, extra": {func(s *Script) { s.Options.Extra = []string{"--cpus-per-gpu=2"} }, []string{"--cpus-per-gpu=2"}},
		"cores as TRES":   {func(s *Script) { s.Options.Extra = []string{"--tres-per-task=cpu:3"} }, nil},
		"GPUs of a node":  {list(Option{Name: "gpus-per-node", Value: "2"}), []string{"--ntasks-per-node=4"}},
		"GPUs as gres":    {list(Option{Name: "gres", Value: "gpu:a100:2"}), []string{"--ntasks-per-node=4"}},
		"GPUs, extra":     {func(s *Script) { s.Options.Extra = []string{"-G8"} }, []string{"--ntasks-per-node=4"}},
		"GPUs and cores": {func(s *Script) { s.Options.List, s.CPUsPerRank = []Option{{Name: "gpus", Value: "8"}}, 2 },
			[]string{"--cpus-per-task=8"}},
		"GPUs of a task": {list(Option{Name: "gpus-per-task", Value: "4"}), []string{"--cpus-per-task=4"}},
		"GPUs, and skipped": {func(s *Script) {
			s.Options = Options{List: []Option{{Name: "gpus", Value: "8"}}, Skip: []string{"mincpus"}}
		}, nil},
		"no GPU":            {list(Option{Name: "gres", Value: "lustre:1"}), []string{"--cpus-per-task=4"}},
		"fewer, extra":      {func(s *Script) { s.Options.Extra = []string{"-O"} }, nil},
		"cores, as a word":  {func(s *Script) { s.Words = []string{"--cpus-per-gpu=8"} }, nil},
		"TRES, as a word":   {func(s *Script) { s.Words = []string{"-v", "--tres-per-task=cpu:8"} }, nil},
		"fewer, as a word":  {func(s *Script) { s.Words = []string{"--overcommit"} }, nil},
		"another word":      {func(s *Script) { s.Words = []string{"--switches=1"} }, []string{"--cpus-per-task=4"}},
		"the site's refuse": {func(s *Script) { s.Options.Skip = []string{"cpus-per-task"} }, nil},
		"skipped":           {func(s *Script) { s.Options.Skip = []string{"mincpus"} }, nil},
		"task":              {func(s *Script) { s.Mode = "task" }, nil},
	} {
		script := Script{Name: "x", RunDir: "/r", WorkDir: "/w", Nodes: 2, Mode: "agent", Nproc: 4}
		c.change(&script)
		var got []string
		for _, word := range directives(t, render(t, script)) {
			if strings.HasPrefix(word, "--mincpus") || strings.HasPrefix(word, "--cpus-per-") || strings.HasPrefix(word, "--ntasks") {
				got = append(got, word)
			}
		}
		if !slices.ContainsFunc(c.want, func(word string) bool { return strings.HasPrefix(word, "--ntasks") }) {
			tasks := "--ntasks-per-node=1"
			if name == "task" {
				tasks = "--ntasks-per-node=4"
			}
			c.want = append([]string{tasks}, c.want...)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The script has the options for a requeue if the job wants one, unless its user has chosen otherwise.
func TestRenderAsksForRequeueWhereWanted(t *testing.T) {
	list := func(options ...Option) func(*Script) { return func(s *Script) { s.Options.List = options } }
	for name, c := range map[string]struct {
		change func(*Script)
		want   []string
	}{
		"asked for":          {func(*Script) {}, []string{"--requeue", "--signal=B:USR2@90"}},
		"not asked for":      {func(s *Script) { s.Requeue = false }, nil},
		"no warning":         {func(s *Script) { s.Lead = 0 }, []string{"--requeue"}},
		"too early":          {func(s *Script) { s.Lead = 24 * time.Hour }, []string{"--requeue", "--signal=B:USR2@65535"}},
		"the user's signal":  {list(Option{Name: "signal", Value: "B:USR1@9"}), []string{"--requeue", "--signal=B:USR1@9"}},
		"the user's requeue": {list(Option{Name: "requeue", Value: "x"}), []string{"--signal=B:USR2@90", "--requeue=x"}},
		"the user's no":      {list(Option{Name: "no-requeue", Flag: true}), []string{"--signal=B:USR2@90", "--no-requeue"}},
		"the site's":         {func(s *Script) { s.Options.Skip = []string{"--requeue", "signal"} }, nil},
		"fewer nodes":        {func(s *Script) { s.Requeue, s.MinNodes = false, 1 }, []string{"--no-kill"}},
	} {
		script := Script{Name: "x", RunDir: "/r", WorkDir: "/w", Nodes: 2, Mode: "agent", Nproc: 1, Requeue: true, Lead: 90 * time.Second}
		c.change(&script)
		var got []string
		for _, word := range directives(t, render(t, script)) {
			if strings.Contains(word, "requeue") || strings.Contains(word, "signal") || strings.Contains(word, "kill") {
				got = append(got, word)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// Slurm chooses from a range of nodes. sbatch does not get a number of tasks, which would make it take the fewest nodes, and srun uses the
// nodes that the job has.
func TestRenderLeavesARangeOfNodesToSlurm(t *testing.T) {
	for name, options := range map[string][]Option{"cores": nil, "GPUs": {{Name: "gpus-per-node", Value: "4"}}} {
		script := Script{Name: "x", RunDir: "/r", WorkDir: "/w", Nodes: 4, LeastNodes: 2, Mode: "agent", Nproc: 4,
			Options: Options{List: options}}
		text := render(t, script)
		var got []string
		for _, word := range directives(t, text) {
			if strings.Contains(word, "nodes") || strings.Contains(word, "tasks") || strings.Contains(word, "cpus") {
				got = append(got, word)
			}
		}
		if want := []string{"--nodes=2-4", "--cpus-per-task=4"}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if !strings.Contains(text, "srun --nodes=$SLURM_JOB_NUM_NODES --ntasks=$SLURM_JOB_NUM_NODES --ntasks-per-node=1 ") {
			t.Errorf("%s: srun does not get the job's nodes:\n%s", name, text)
		}
	}
	same := Script{Name: "x", RunDir: "/r", WorkDir: "/w", Nodes: 4, Mode: "agent", Nproc: 4}
	ranged := same
	if ranged.LeastNodes = 4; render(t, same) != render(t, ranged) {
		t.Error("4 to 4 nodes are not 4 nodes")
	}
}

func TestRenderRefuses(t *testing.T) {
	good := goldenScripts["agent"]
	for name, c := range map[string]struct {
		change func(*Script)
		says   string
	}{
		"no nodes":               {func(s *Script) { s.Nodes = 0 }, "nodes"},
		"unknown mode":           {func(s *Script) { s.Mode = "fork" }, "neither agent nor task"},
		"task mode, no number":   {func(s *Script) { s.Mode, s.Nproc = "task", 0 }, "nproc_per_node"},
		"cores, no number":       {func(s *Script) { s.CPUsPerRank, s.Nproc = 2, 0 }, "nproc_per_node"},
		"negative":               {func(s *Script) { s.Nproc = -1 }, "negative"},
		"relative run directory": {func(s *Script) { s.RunDir = "runs/x" }, "absolute"},
		"relative workdir":       {func(s *Script) { s.WorkDir = "" }, "absolute"},
		"a range upside down":    {func(s *Script) { s.LeastNodes = 9 }, "must be between 1 and"},
		"a range in task mode":   {func(s *Script) { s.Mode, s.LeastNodes = "task", 1 }, "launch.mode"},
		"more than all nodes":    {func(s *Script) { s.MinNodes = 3 }, "min_nodes"},
		"negative lead":          {func(s *Script) { s.Lead = -1 }, "negative"},
		"backslash":              {func(s *Script) { s.RunDir = `/r\x` }, "set run_dir"},
		"newline in run dir":     {func(s *Script) { s.RunDir = "/r\nx" }, "control character"},
		"newline in name":        {func(s *Script) { s.Name = "x\n#SBATCH --uid=0" }, "control character"},
		"newline in workdir":     {func(s *Script) { s.WorkDir = "/\nrm -rf /" }, "control character"},
		"newline in an option":   {func(s *Script) { s.Options.List = []Option{{Name: "comment", Value: "a\nb"}} }, "control character"},
		"newline in extra":       {func(s *Script) { s.Options.Extra = []string{"--x=a\nb"} }, "control character"},
		"reserved in extra":      {func(s *Script) { s.Options.Extra = []string{"--output=x"} }, "run directory"},
		"newline in a module":    {func(s *Script) { s.Setup.Modules = []string{"a\nb"} }, "setup.modules"},
		"module as option":       {func(s *Script) { s.Setup.Modules = []string{"--force"} }, "setup.modules"},
		"newline in venv":        {func(s *Script) { s.Setup.Venv = "a\nb" }, "setup.venv"},
		"another's home":         {func(s *Script) { s.Setup.Venv = "~ann/venv" }, "home folder"},
		"conda as option":        {func(s *Script) { s.Setup.Conda = "--stack" }, "setup.conda"},
		"NUL in script":          {func(s *Script) { s.Setup.Script = []string{"a\x00b"} }, "NUL"},
		"DOS line in script":     {func(s *Script) { s.Setup.Script = []string{"a\r"} }, "DOS"},
		"too long":               {func(s *Script) { s.Setup.Script = []string{strings.Repeat("x", 5<<20)} }, "longer"},
		"components, a range":    {func(s *Script) { s.Components, s.LeastNodes = []Component{{Nodes: 1}}, 1 }, "a range of nodes"},
		"components, elastic":    {func(s *Script) { s.Components, s.MinNodes = []Component{{Nodes: 1}}, 1 }, "fewer nodes"},
		"components, an array": {func(s *Script) {
			s.Components, s.Options.List = []Component{{Nodes: 1}}, []Option{{Name: "array", Value: "1"}}
		}, "be an array"},
		"too many components":       {func(s *Script) { s.Components = make([]Component, MaxHetSize) }, "at most 128"},
		"a component without nodes": {func(s *Script) { s.Components = []Component{{Nodes: 1}, {}} }, "component 2: nodes must be"},
		"newline in a component": {func(s *Script) {
			s.Components = []Component{{Nodes: 1, Options: Options{List: []Option{{Name: "gres", Value: "a\nb"}}}}}
		}, "component 1: sbatch option"},
		"not UTF-8": {func(s *Script) { s.WorkDir = "/\xff" }, "UTF-8"},
	} {
		script := good
		c.change(&script)
		text, err := script.Render(batchTemplate(t))
		if err == nil || !strings.Contains(err.Error(), c.says) || text != "" {
			t.Errorf("%s: %d bytes, %v; want an error with %q", name, len(text), err, c.says)
		}
	}
}

func TestRenderTakesAnOwnTemplate(t *testing.T) {
	script := goldenScripts["agent-setup"]
	text, err := script.Render("#!/bin/sh\n{{range .Directives}}#SBATCH {{.}}\n{{end}}printf '%s\\0' {{.Name}} {{.RunDir}} " +
		"{{.Program}}{{range .Modules}} {{.}}{{end}} {{.Venv}}\n")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash")
	cmd.Stdin, cmd.Env = strings.NewReader(text), []string{"HOME=/home/ann", "PATH=/usr/bin:/bin"}
	out, err := cmd.Output()
	want := []string{"it's #1", script.RunDir, script.RunDir + "/bin/ddpbatch", "python/3.8", "cuda 11", "/home/ann/my venv/bin/activate"}
	if got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q (%v), want %q", got, err, want)
	}
	for text, says := range map[string]string{
		"#!/bin/sh\n{{.Nothing}}": "Nothing", "{{": "read the script template", "true\n": `begin with "#!"`, "": "#!",
	} {
		if _, err := script.Render(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("template %q: %v; want %q in the error", text, err, says)
		}
	}
}

// A template that never ends, or whose output is larger than Slurm permits, is an error and does not use up memory.
func TestRenderEndlessTemplate(t *testing.T) {
	script := goldenScripts["agent-setup"]
	for _, text := range []string{
		"#!/bin/sh\n{{range 9223372036854775807}}xxx{{end}}", `{{range 2000}}{{printf "%1000000d" 1}}{{end}}`,
	} {
		if out, err := script.Render(text); err == nil || !strings.Contains(err.Error(), "longer than 4194304 bytes") || out != "" {
			t.Errorf("template %q: %d bytes, %v; want an error with the bound", text, len(out), err)
		}
	}
	release := make(chan string)
	defer close(release)
	endless := template.Must(template.New("").Funcs(template.FuncMap{"wait": func() string { return <-release }}).Parse("{{wait}}"))
	if _, err := fill(endless, nil, time.Millisecond); err == nil || !strings.Contains(err.Error(), "takes longer") {
		t.Errorf("a loop without an end: %v", err)
	}
}

// Whatever the names, paths and values contain, the script is valid shell, and Slurm and the shell read exactly these words.
func FuzzRender(f *testing.F) {
	for i, w := range hostileWords {
		f.Add(w, hostileWords[(i*7+3)%len(hostileWords)])
	}
	template := batchTemplate(f)
	f.Fuzz(func(t *testing.T, a, b string) {
		script := Script{
			Name: a, RunDir: "/" + b, WorkDir: "/" + a, Nodes: 1, Mode: "agent",
			Options: Options{List: []Option{{Name: "comment", Value: a}, {Name: "account", Value: b}}, Extra: []string{"--x=" + b}},
			Setup:   Setup{Modules: []string{"m" + a}, Venv: "/v" + b, Conda: "c" + a},
		}
		text, err := script.Render(template)
		if err != nil {
			return
		}
		want := []string{"--job-name=" + a, "--output=" + strings.ReplaceAll("/"+b, "%", "%%") + "/slurm-%j.log",
			"--open-mode=append", "--chdir=/" + a,
			"--nodes=1", "--ntasks-per-node=1", "--comment=" + a, "--account=" + b, "--x=" + b}
		if got := directives(t, text); !slices.Equal(got, want) {
			t.Fatalf("Slurm reads %q, want %q", got, want)
		}
		var stderr bytes.Buffer
		cmd := exec.Command("bash", "-n")
		cmd.Stdin, cmd.Stderr = strings.NewReader(text), &stderr
		if err := cmd.Run(); err != nil || stderr.Len() > 0 {
			t.Fatalf("bash -n: %v %s in\n%s", err, stderr.String(), text)
		}
	})
}
