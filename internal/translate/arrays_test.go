package translate

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/jobfile"
)

// Each rank gets the words that the script gives its command, and the commands that set them run once.
func TestRanksGetArraysAsTheScriptHasThem(t *testing.T) {
	needsBash(t)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "prog"), []byte("#!/bin/bash\nprintf '<%s>' \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	for _, script := range []string{
		"A=(--lr $(echo 1)); A+=(--note \"two  words\" '$x' '' $'line\\nbreak')\nsrun prog \"${A[@]}\"\n",
		"declare -A M\nM[a]=\"$(echo 1 2)\"\nsrun prog \"${M[a]}\" \"${#M[@]}\"\n",
		"L=($(echo a b c)); B=(x $(echo y))\nI=$(echo 2)\nsrun prog \"${L[$I]}\" \"${B[@]}\"\n",
		"mapfile -t N < <(printf 'n1 x\\nn2\\n')\nsrun prog \"${N[0]}\" ${N[1]}\n",
	} {
		result, err := Script("#!/bin/bash\n"+script, Options{Source: "x", Name: "x", Base: "."})
		if err != nil {
			t.Errorf("%s: %v", script, err)
			continue
		}
		job, _, err := jobfile.Parse("job.toml", "/work", []byte(result.Text), nil)
		if err != nil {
			t.Errorf("%s: %v", script, err)
			continue
		}
		want, err1 := exec.Command("bash", "-c", strings.Replace(script, "srun ", "", 1)).Output()
		setup := strings.Join(job.Setup.Script, "\n") + "\n\"$@\"\n"
		got, err2 := exec.Command("bash", append([]string{"-c", setup, "job"}, job.Launch.Command...)...).Output()
		if err1 != nil || err2 != nil || string(got) != string(want) || len(want) == 0 {
			t.Errorf("%s: %q, want %q (%v, %v)\n%s", script, got, want, err1, err2, result.Text)
		}
	}
}
