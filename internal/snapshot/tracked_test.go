package snapshot

import (
	"crypto/sha1"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestGitCopiesWhatIsTracked: tracked files are copied as they are on disk, with uncommitted changes. Other files are copied only if a
// pattern names them.
func TestGitCopiesWhatIsTracked(t *testing.T) {
	r := newRepository(t)
	odd := "odd \"name\"\twith\nall\xff"
	r.write("train.py", "1", "src/model.py", "1", "gone.py", "1", "became/file", "1", odd, "1", "run.sh", "1", "secret.txt", "1", "fifo",
		"1", ".gitignore", "*.log\nignored/\n")
	r.must(os.Chmod(r.path("run.sh"), 0o755))
	r.link("src/model.py", "m.py")
	r.link(r.path("src"), "absolute")
	r.link("../../other", "src/out")
	r.link("/etc/passwd", "etc")
	r.link("nowhere", "dangling")
	r.link("..", "src/up")
	r.link("src/up/..", "above") // src by its text, but really the folder above the tree
	commit := r.commit()
	r.write("train.py", "2", "added.py", "2", "new.py", "2", "conf/a.yaml", "2", "conf/deep/b.yaml", "2", "x.log", "2", "ignored/c.yaml",
		"2", "runs/d.yaml", "2")
	r.git("add", "added.py")
	r.must(os.Remove(r.path("gone.py")))
	r.must(os.RemoveAll(r.path("became")))
	r.must(os.Symlink("src", r.path("became"))) // through this link, became/file is another file
	r.must(os.Remove(r.path("fifo")))
	r.must(syscall.Mkfifo(r.path("fifo"), 0o600))
	request := r.request(Git)
	request.Include, request.Exclude = []string{"*.yaml"}, []string{"secret.*", "deep/"}
	c := r.copies(request)
	c.holds(map[string]string{
		"train.py": "2", "src/model.py": "1", odd: "1", "run.sh": "1", ".gitignore": "*.log\nignored/\n", "m.py": "-> src/model.py",
		"absolute": "-> src", "dangling": "-> nowhere", "src/up": "-> ..", "added.py": "2", "conf/a.yaml": "2", "ignored/c.yaml": "2",
	})
	c.leftOut(
		"above", "a link that leads out of the tree, to src/up/..", "became/file", "tracked, but missing", "etc",
		"a link that leads out of the tree, to /etc/passwd", "fifo", "neither a file nor a link",
		"gone.py", "tracked, but missing",
		"secret.txt", "code.exclude", "src/out", "a link that leads out of the tree, to ../../other",
		"became", "untracked: git add, or code.include", "conf/", "untracked: git add, or code.include", "new.py",
		"untracked: git add, or code.include",
	)
	if info, err := os.Stat(c.path("run.sh")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("run.sh: %v, %v", info.Mode(), err)
	}
	if c.record.Commit != commit || c.record.Changes != 4 || !strings.Contains(c.diff, "--- a/train.py\n+++ b/train.py\n") {
		t.Errorf("the record: %+v\n%s", c.record, c.diff)
	}
}

// TestGitBelowTheTop: the working directory may be a folder of the work tree that is reached through a link.
func TestGitBelowTheTop(t *testing.T) {
	r := newRepository(t)
	r.write("lib/a.py", "1", "jobs/x/job.toml", "1")
	r.commit()
	r.link(r.dir, "../"+filepath.Base(r.dir)+"-link")
	t.Cleanup(func() { _ = os.Remove(r.dir + "-link") })
	request := r.request(Git)
	request.WorkDir = r.dir + "-link/jobs/x"
	s, err := request.Select(t.Context())
	r.must(err)
	if s.Dir != "jobs/x" || s.Root != r.dir {
		t.Errorf("%s in %s", s.Dir, s.Root)
	}
	r.copies(request).holds(map[string]string{"lib/a.py": "1", "jobs/x/job.toml": "1"})

	r.write("other/job.toml", "1")
	request.WorkDir = r.path("other")
	r.refuses(request, "git tracks no file in workdir, "+r.path("other"), "code.include")
}

// TestGitBeforeTheFirstCommit copies a repository that does not have a commit to compare with.
func TestGitBeforeTheFirstCommit(t *testing.T) {
	r := newRepository(t)
	r.write("a.py", "1")
	r.git("add", "a.py")
	c := r.copies(r.request(Git))
	c.holds(map[string]string{"a.py": "1"})
	if c.record.Commit != "" || c.diff != "" {
		t.Errorf("%+v, %q", c.record, c.diff)
	}
}

// TestGitDuringAMerge: a file that has three versions in the index is copied once.
func TestGitDuringAMerge(t *testing.T) {
	r := newRepository(t)
	r.write("a.py", "1\n", "b.py", "1\n")
	r.commit()
	r.git("checkout", "-q", "-b", "other")
	r.write("a.py", "2\n")
	r.commit()
	r.git("checkout", "-q", "-")
	r.write("a.py", "3\n")
	r.commit()
	cmd := exec.Command("git", "-c", "user.name=n", "-c", "user.email=e", "merge", "other")
	cmd.Dir, cmd.Env = r.dir, environ()
	if err := cmd.Run(); err == nil {
		t.Fatal("the merge has no conflict")
	}
	c := r.copies(r.request(Git))
	if text, err := os.ReadFile(c.path("a.py")); err != nil || !strings.Contains(string(text), "<<<<<<<") || c.record.Files != 2 {
		t.Errorf("%q, %v, %+v", text, err, c.record)
	}
}

// TestGitTakesSubmodules: files that are tracked in submodules are in the copy and in the diff. A submodule that is not checked out is
// named.
func TestGitTakesSubmodules(t *testing.T) {
	inner, middle, r := newRepository(t), newRepository(t), newRepository(t)
	inner.write("deep.py", "1\n")
	deep := inner.commit()
	middle.write("m.py", "1\n")
	middle.git("submodule", "--quiet", "add", inner.dir, "inner")
	middle.commit()
	r.write("a.py", "1\n")
	r.git("submodule", "--quiet", "add", middle.dir, "third/middle")
	r.git("submodule", "--quiet", "add", middle.dir, "third/empty")
	r.commit()
	r.git("submodule", "--quiet", "update", "--init", "--recursive", "third/middle")
	r.git("submodule", "--quiet", "deinit", "--force", "third/empty")
	r.write("third/middle/m.py", "2\n", "third/middle/inner/deep.py", "2\n", "third/middle/untracked.py", "2\n")
	c := r.copies(r.request(Git))
	modules := string(r.read("third/middle/.gitmodules"))
	c.holds(map[string]string{
		"a.py": "1\n", ".gitmodules": string(r.read(".gitmodules")), "third/middle/.gitmodules": modules, "third/middle/m.py": "2\n",
		"third/middle/inner/deep.py": "2\n",
	})
	c.leftOut("third/empty/", "a submodule that is not checked out")
	if len(c.record.Modules) != 2 || c.record.Modules[1] != (Submodule{"third/middle/inner", deep}) || c.record.Changes != 2 {
		t.Errorf("the record: %+v", c.record)
	}
	for _, line := range []string{"+++ b/third/middle/m.py\n", "--- a/third/middle/inner/deep.py\n"} {
		if !strings.Contains(c.diff, line) {
			t.Errorf("%q is not in the diff:\n%s", line, c.diff)
		}
	}
	request := r.request(Git)
	request.Exclude = []string{"third/"}
	c = r.copies(request)
	c.leftOut("third/empty/", "code.exclude", "third/middle/", "code.exclude")
}

// TestGitRefuses: if git cannot do something, the error has git's own words.
func TestGitRefuses(t *testing.T) {
	plain := newTree(t)
	plain.write("a.py", "1")
	plain.refuses(plain.request(Git), "not a git repository", `code.snapshot = "copy"`)
	request := plain.request(Git)
	request.GitPath = ""
	plain.refuses(request, "needs git, which is not on the PATH")
	request.WorkDir = plain.path("nowhere")
	plain.refuses(request, plain.path("nowhere"), "no such file")
	request.WorkDir = plain.path("a.py")
	plain.refuses(request, "is not a folder")

	bare := newTree(t)
	bare.git("init", "-q", "--bare")
	bare.refuses(bare.request(Git), "must be run in a work tree")

	r := newRepository(t)
	r.write("a.py", "1")
	r.commit()
	r.git("config", "core.worktree", plain.dir)
	r.refuses(r.request(Git), "which is not above it")
	r.git("config", "--unset", "core.worktree")
	r.write(".git/index", "damaged")
	r.refuses(r.request(Git), "git says of", "index")
}

// TestGitOfAnotherUser: the error has git's words about a repository that belongs to another user.
func TestGitOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a repository to another user")
	}
	r := newRepository(t)
	r.write("a.py", "1")
	r.commit()
	r.must(os.Chown(r.path(".git"), 12345, -1))
	r.must(os.Chown(r.dir, 12345, -1))
	r.refuses(r.request(Git), "dubious ownership", "safe.directory")
}

// TestHostileRepositoryRunsNothing: no program that a repository's configuration or attributes name is started, and no environment variable
// leads git elsewhere.
func TestHostileRepositoryRunsNothing(t *testing.T) {
	elsewhere, sub, r := newRepository(t), newRepository(t), newRepository(t)
	elsewhere.write("other.py", "1")
	elsewhere.commit()
	sub.write("s.py", "1\n")
	sub.commit()
	r.write("a.py", "1\n", "b.bin", "1\n", ".gitattributes", "*.py filter=evil diff=evil\n*.bin filter=long.name diff=evil\n")
	r.git("submodule", "--quiet", "add", sub.dir, "sub")
	r.commit()
	proof := filepath.Join(t.TempDir(), "proof")
	program := filepath.Join(t.TempDir(), "evil")
	r.must(os.WriteFile(program, []byte("#!/bin/sh\necho \"$0 $*\" >>'"+proof+"'\ncat\n"), 0o755))
	hooks := r.path(".git/hooks")
	r.must(os.MkdirAll(hooks, 0o755))
	for _, hook := range []string{"post-index-change", "fsmonitor-watchman", "post-checkout"} {
		r.must(os.WriteFile(filepath.Join(hooks, hook), []byte("#!/bin/sh\nexec '"+program+"'\n"), 0o755))
	}
	for _, where := range []tree{r, {t, r.path("sub")}} {
		for key, value := range map[string]string{
			"core.fsmonitor": program, "core.pager": program, "core.hooksPath": hooks, "core.sshCommand": program, "core.editor": program,
			"filter.evil.clean": program, "filter.evil.process": program, "filter.evil.smudge": program, "filter.evil.required": "true",
			"filter.long.name.clean": program, "filter.long.name.required": "true",
			"diff.external": program, "diff.evil.command": program, "diff.evil.textconv": program,
			"pager.diff": program, "diff.submodule": "diff", "status.submoduleSummary": "true",
		} {
			where.git("config", key, value)
		}
	}
	r.write("a.py", "2\n", "b.bin", "2\n", "sub/s.py", "2\n", "new.py", "2\n", "sub/.gitattributes", "*.py filter=evil diff=evil\n")
	r.must(os.RemoveAll(proof)) // the test's own calls of git may have made it
	request := r.request(Git)
	request.Environ = append(request.Environ, "GIT_DIR="+elsewhere.path(".git"), "GIT_WORK_TREE="+elsewhere.dir,
		"GIT_EXTERNAL_DIFF="+program,
		"GIT_INDEX_FILE="+elsewhere.path(".git/index"), "GIT_PAGER="+program, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=core.fsmonitor",
		"GIT_CONFIG_VALUE_0="+program,
		"GIT_TRACE2_EVENT="+proof, "GIT_TRACE="+proof)
	index := r.read(".git/index")
	c := r.copies(request)
	c.holds(map[string]string{
		"a.py": "2\n", "b.bin": "2\n", "sub/s.py": "2\n", ".gitattributes": string(r.read(".gitattributes")),
		".gitmodules": string(r.read(".gitmodules")),
	})
	if said, err := os.ReadFile(proof); err == nil {
		t.Errorf("started, or written: %s", said)
	}
	if !strings.Contains(c.diff, "-1\n+2\n") || !strings.Contains(c.diff, "a/sub/s.py") {
		t.Errorf("the diff:\n%s", c.diff)
	}
	if string(index) != string(r.read(".git/index")) {
		t.Error("the index was written")
	}
	r.git("config", "filter.a=b.clean", program)
	s, err := request.Select(t.Context())
	r.must(err)
	if _, err := s.Write(t.Context(), t.TempDir(), testNames); err == nil || !strings.Contains(err.Error(), "with = in its name") {
		t.Errorf("error %v", err)
	}
}

// TestHostileIndexLeadsNowhere uses names that no work tree can have.
func TestHostileIndexLeadsNowhere(t *testing.T) {
	r := newRepository(t)
	r.write("aaaaaaaaa", "1")
	r.git("add", "-A")
	index := r.read(".git/index")
	for _, name := range []string{"../../etc", ".git/conf"} {
		bad := strings.Replace(string(index), "aaaaaaaaa", name, 1)
		sum := sha1.Sum([]byte(bad[:len(bad)-sha1.Size]))
		r.write(".git/index", bad[:len(bad)-sha1.Size]+string(sum[:]))
		_, err := r.request(Git).Select(t.Context())
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
