package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// testSlurmCode changes the tree after submit, before the job begins. The job runs the code as it was at submit, in its first run, after a
// requeue and after a resume.
func testSlurmCode(t *testing.T, c *cluster) {
	proj := filepath.Join(c.dir, "proj")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(proj, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", proj, "-c", "user.name=n", "-c", "user.email=n@x"}, args...)...)
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
	}
	if err := os.Mkdir(proj, 0o755); err != nil {
		t.Fatal(err)
	}
	write("work.sh", `echo "committed"`)
	write("job.toml", `name = "code"
run_dir = "../runs"
[code]
snapshot = "git"
[slurm]
nodes = 2
time = "00:05:00"
[setup]
script = ["cat word.txt >>`+c.dir+`/script"]
[launch]
command = ["sh", "work.sh"]
`)
	write("word.txt", "old\n")
	git("init", "-q")
	git("add", "-A")
	git("commit", "-q", "-m", "m")
	write("work.sh", `said=$DDPBATCH_SOURCE_DIR/said.$RANK
cat word.txt >>"$said"
case $(wc -l <"$said") in
1) exit 75 ;; # once more
2) # the first to fail ends the other, which is to have said its word
	until [ "$(cat "$DDPBATCH_SOURCE_DIR"/said.* | wc -l)" -ge 4 ]; do sleep 0.05; done
	exit 1 ;;
esac
`)
	s := c.submit("proj/job.toml", "--", "--hold")
	write("word.txt", "new\n")
	write("work.sh", `echo changed >>"$DDPBATCH_SOURCE_DIR/said.$RANK"`)
	if err := os.Remove(filepath.Join(proj, "job.toml")); err != nil {
		t.Fatal(err)
	}
	c.ok("scontrol", "release", s.id)
	if job := s.await(); job["JobState"] != "FAILED" || job["Restarts"] != "1" {
		t.Errorf("Slurm says: %s, %s restarts", job["JobState"], job["Restarts"])
	}
	c.ok("ddpbatch", "resume", "--wait", s.dir.Path())
	for _, file := range []string{"proj/said.0", "proj/said.1", "script"} {
		if said, err := os.ReadFile(filepath.Join(c.dir, file)); err != nil || string(said) != strings.Repeat("old\n", 3) {
			t.Errorf("%s holds %q, %v; want what word.txt held at submit, three times", file, said, err)
		}
	}
}
