package main

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/testkit/torch"
	"ddpbatch/templates"
)

// starterRows say how to try each starter: what the test puts into its folder, and what makes it short. All others run as they are written.
var starterRows = map[string]struct {
	bring func(t *testing.T, dir string)
	args  []string
	torch bool // needs PyTorch
	says  string
}{
	"simulate": {says: "checkpoints/step-000000000064\n"},
	"mnist": {bring: bringDigits, args: []string{"--nodes", "2", "--set", "train.max_steps=3"},
		says: "checkpoints/step-000000000003\n"},
	"gpt":       {bring: bringText, args: starterGPT, says: "checkpoints/step-000000000002\n"},
	"pytorch":   {torch: true}, // TestPyTorchStarterComesToTheSameEnd runs it
	"torchrun":  {args: starterTorchrun, torch: true, says: "world size 2 on CPUs by Gloo, from step 0\n"},
	"command":   {says: "rank 3 of 4 on "},
	"task":      {says: "task 3 of srun is rank 3 of 4 on "},
	"process":   {says: " cores on "},
	"array":     {says: "element 3: rank 1 of 2\n"},
	"sweep":     {says: "/tasks/2/checkpoints/step-000000000056\n"},
	"container": {bring: bringImage}, // TestContainers runs it
	"chain":     {args: []string{"--set", "train.epochs=4"}, says: "checkpoints/step-000000000128\n"},

	"parallelcluster": {args: append(slices.Clone(starterTorch), "--nodes", "1"), torch: true,
		says: "world size 1 on CPUs by Gloo, from step 0\n"},
}

var starterGPT = []string{"--nodes", "1", "--set", "train.max_steps=2", "--set", "train.batch_size=1", "--set",
	"train.schedule.warmup_steps=1"}

var starterTorch = []string{"--nproc-per-node", "1", "--set", `launch.command=["python3", "train.py", "--epochs", "1"]`}

// Under Python 3.11, Debian's torchrun of PyTorch 1.13 requires that --redirects and --tee are given as maps.
var starterTorchrun = []string{
	"--set", `launch.command=["bash", "torchrun.sh", "1", "train.py", "--epochs", "1"]`,
	"--set", `setup.env={PET_REDIRECTS="0:2", PET_TEE="0:1", PET_MONITOR_INTERVAL="0.1"}`,
}

// TestStartersRunUnderSimulate writes each starter as a user does, provides the files that it needs, and runs it.
func TestStartersRunUnderSimulate(t *testing.T) {
	t.Parallel()
	for _, s := range templates.Starters() {
		row, ok := starterRows[s.Name]
		if !ok {
			t.Errorf("nobody tries the starter %s", s.Name)
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			var env []string
			if row.torch {
				env = starterTorchEnv(t)
			}
			dir := t.TempDir()
			out := initStarter(t, dir, s.Name)
			if (s.Bring != "") != strings.Contains(out, "\nyou need:  "+s.Bring) || (s.Bring != "") != (row.torch || row.bring != nil) {
				t.Errorf("init says %s", out)
			}
			if row.bring != nil {
				row.bring(t, dir)
			}
			if row.says == "" {
				return
			}
			cmd, text := command(dir, append([]string{"simulate", "job.toml"}, row.args...)...)
			cmd.Env = append(os.Environ(), env...)
			if err := cmd.Run(); err != nil || !strings.Contains(text.String(), row.says) {
				t.Errorf("%v, want %q in\n%s", err, row.says, text)
			}
		})
	}
}

// initStarter writes a starter into dir, and returns what init prints.
func initStarter(t *testing.T, dir, name string) string {
	t.Helper()
	cmd, out := command(dir, "init", "--template", name)
	if err := cmd.Run(); err != nil {
		t.Fatalf("init --template %s: %v\n%s", name, err, out)
	}
	return out.String()
}

// starterTorchEnv returns an environment in which python3 has PyTorch, or skips the test.
func starterTorchEnv(t *testing.T) []string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it starts PyTorch")
	}
	return []string{
		"PATH=" + filepath.Dir(torch.Python(t)) + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TMPDIR=" + t.TempDir(),
		"PYTHONDONTWRITEBYTECODE=1",
	}
}

// bringImage makes a file that looks like an image.
func bringImage(t *testing.T, dir string) { bring(t, dir, "image.sif", nil) }

// bringDigits makes as many pictures as the starter needs, in MNIST's format. They are all black.
func bringDigits(t *testing.T, dir string) {
	t.Helper()
	const rows, side = 10000, 28
	idx := func(kind byte, shape []uint32, data []byte) []byte {
		file := []byte{0, 0, 8, kind}
		for _, n := range shape {
			file = binary.BigEndian.AppendUint32(file, n)
		}
		return append(file, data...)
	}
	bring(t, dir, "data/t10k-images-idx3-ubyte.gz", idx(3, []uint32{rows, side, side}, make([]byte, rows*side*side)))
	bring(t, dir, "data/t10k-labels-idx1-ubyte.gz", idx(1, []uint32{rows}, bytes.Repeat([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, rows/10)))
}

func bringText(t *testing.T, dir string) {
	t.Helper()
	bring(t, dir, "input.txt", []byte(strings.Repeat("To train, or not to train. ", 600)))
}

func bring(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPyTorchStarterComesToTheSameEnd warns the ranks of train.py in the middle. They save, exit with 75, start again, and end with the
// same bytes as without the warning.
func TestPyTorchStarterComesToTheSameEnd(t *testing.T) {
	t.Parallel()
	env, dir := starterTorchEnv(t), t.TempDir()
	initStarter(t, dir, "pytorch")
	// Three epochs, so that the warning comes before the end even on a busy machine.
	longer := []string{"--set", `launch.command=["python3", "train.py", "--epochs", "3"]`}
	cmd, out := command(dir, slices.Concat([]string{"rehearse", "job.toml", "--fault", "warn@step=10"}, starterTorch, longer)...)
	cmd.Env = append(os.Environ(), env...)
	err := cmd.Run()
	if said := out.String(); err != nil || !strings.Contains(said, "same: 1 file equal") || !strings.Contains(said, "interrupted\t2\t") {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestPyTorchStarterComesNearTheSameEnd does the same with four ranks, which sum gradients in another order after the restart.
func TestPyTorchStarterComesNearTheSameEnd(t *testing.T) {
	t.Parallel()
	env, dir := append(starterTorchEnv(t), "OMP_NUM_THREADS=1"), t.TempDir()
	initStarter(t, dir, "pytorch")
	cmd, out := command(dir, "rehearse", "job.toml", "--fault", "warn:all@step=10", "--atol", "1e-6", "--nodes", "1",
		"--nproc-per-node", "4",
		"--set", `launch.command=["python3", "train.py", "--epochs", "2"]`)
	cmd.Env = append(os.Environ(), env...)
	err := cmd.Run()
	if said := out.String(); err != nil || !strings.Contains(said, "same: 1 file equal") || !strings.Contains(said, "interrupted\t2\t") ||
		strings.Contains(said, "not byte for byte") != strings.Contains(said, "largest difference: absolute ") {
		t.Errorf("%v\n%s", err, said)
	}
}

// TestStartersScriptsAreGoodShell renders each starter as it is written, and once with the settings that its comments offer. bash and
// shellcheck check the scripts.
func TestStartersScriptsAreGoodShell(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	scripts := []string{}
	offered := regexp.MustCompile(`(?m)^#([a-z].*)`)
	for _, s := range templates.Starters() {
		for name, text := range map[string]string{s.Name: s.Text, s.Name + "-on": offered.ReplaceAllString(s.Text, "$1")} {
			bring(t, dir, name+".toml", []byte(text))
			cmd := exec.Command(program, "render", name+".toml", "--set", "code.snapshot=none") // git does not track this folder
			var said strings.Builder
			cmd.Dir, cmd.Stderr = dir, &said
			script, err := cmd.Output()
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, &said)
			}
			bring(t, dir, name+".sh", script)
			scripts = append(scripts, name+".sh")
		}
		for _, file := range s.Files {
			if strings.HasSuffix(file.Name, ".sh") {
				bring(t, dir, file.Name, []byte(file.Text))
				scripts = append(scripts, file.Name)
			}
		}
	}
	check := func(words ...string) {
		t.Helper()
		cmd := exec.Command(words[0], words[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%q: %v\n%s", words, err, out)
		}
	}
	for _, script := range scripts {
		check("bash", "-n", script)
	}
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skipf("bash alone has read the scripts: %v", err)
	}
	check(append([]string{"shellcheck"}, scripts...)...)
}

// init never overwrites an existing file, and in that case it writes none of the others.
func TestInitWritesAllOrNothing(t *testing.T) {
	t.Parallel()
	for _, there := range []string{"job.toml", "torchrun.sh"} {
		dir := t.TempDir()
		bring(t, dir, there, []byte("mine"))
		cmd, out := command(dir, "init", "--template", "torchrun")
		err := cmd.Run()
		if cmd.ProcessState.ExitCode() != exit.Usage || !strings.Contains(out.String(), filepath.Join(dir, there)+" already exists") {
			t.Errorf("%s is there: %v, %s", there, err, out)
		}
		entries, err := os.ReadDir(dir)
		if text, _ := os.ReadFile(filepath.Join(dir, there)); err != nil || len(entries) != 1 || string(text) != "mine" {
			t.Errorf("%s is there: %v is left, %q in it (%v)", there, entries, text, err)
		}
	}
}

// Without a name, init writes the starter that needs no other files.
func TestInitWithoutANameRunsAnywhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, out := command(dir, "init")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "job.toml"))
	first := templates.Starters()[0]
	if err != nil || string(text) != first.Text || first.Bring != "" || len(first.Files) > 0 {
		t.Errorf("%v, %s\n%s", err, out, text)
	}
}
