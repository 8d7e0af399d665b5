package slurm

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The installed sbatch itself reads what quoteDirective writes. It needs no cluster for that: told to be
// verbose, it prints the options it has read before it looks for a controller, and there is
// none where its configuration sends it.
func TestQuoteDirectiveWithSbatch(t *testing.T) {
	if testing.Short() {
		t.Skip("runs sbatch once per word")
	}
	sbatch, err := exec.LookPath("sbatch")
	if err != nil {
		t.Skip("no sbatch on the PATH")
	}
	dir := t.TempDir()
	conf := "ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nNodeName=n1\nPartitionName=p Nodes=n1\n"
	write(t, filepath.Join(dir, "slurm.conf"), conf)
	for _, word := range hostileWords {
		if word == "" {
			continue
		}
		script := filepath.Join(dir, "script.sh")
		write(t, script, "#!/bin/bash\n#SBATCH "+quoteDirective("--comment="+word)+"\ntrue\n")
		got, found := sbatchComment(t, sbatch, dir, script)
		if !found || got != word {
			t.Errorf("sbatch read %q as %q (an option at all: %t)", word, got, found)
		}
	}
}

// sbatchComment is the --comment that sbatch has read from the script.
func sbatchComment(t *testing.T, sbatch, dir, script string) (comment string, found bool) {
	t.Helper()
	cmd := exec.Command(sbatch, "-vv", script)
	cmd.Env = []string{"SLURM_CONF=" + filepath.Join(dir, "slurm.conf"), "PATH=" + os.Getenv("PATH")}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), "end of defined options") {
		if name, value, ok := strings.Cut(strings.TrimPrefix(lines.Text(), "sbatch: "), ": "); ok && strings.TrimSpace(name) == "comment" {
			comment, found = value, true
		}
	}
	_ = cmd.Process.Kill() // it would now look for a controller
	_ = cmd.Wait()         // and so ends as killed
	return comment, found
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}
