package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// scripts/release refuses to build from a tree that differs from its commit, or under a name that is not a version.
func TestReleaseRefuses(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	script, err := os.ReadFile(filepath.Join("..", "..", "scripts", "release"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) {
		t.Helper()
		command := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
		command.Dir = dir
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
	}
	refuses := func(says string, args ...string) {
		t.Helper()
		command := exec.Command(filepath.Join(dir, "scripts", "release"), args...)
		out, err := command.CombinedOutput()
		if command.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), says) {
			t.Errorf("release %q: %v: %s; want exit code 2 and %q", args, err, out, says)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "dist", "*", "*.tar.gz")); len(left) > 0 {
			t.Errorf("release %q made %q", args, left)
		}
	}
	write("scripts/release", string(script))
	git("init", "--quiet")
	refuses("not a clone with a commit", "1.2.0")
	git("add", "-A")
	git("commit", "--quiet", "-m", "one")
	refuses("want one VERSION")
	refuses("want one VERSION", "1.2.0", "1.3.0")
	for _, version := range []string{"1.2", "v1.2.0", "1.2.0 x", "../1.2.0", "1.2.0-$(x)", ""} {
		refuses("is not a version", version)
	}
	write("new.go", "package main\n")
	refuses("remove: ?? new.go", "1.2.0")
	git("add", "-A")
	refuses("remove: A  new.go", "--check", "1.2.0")
	git("commit", "--quiet", "-m", "two")
	write(".git/info/exclude", "dist\n")
	write("dist/1.2.0/SHA256SUMS", "")
	refuses("dist/1.2.0 exists", "1.2.0")
}
