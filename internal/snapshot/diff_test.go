package snapshot

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ddpbatch/internal/redact"
)

// TestDiffHasNoSecrets: the diff has no secrets in any of the forms in which code and configuration hold them. What is not a secret stays.
func TestDiffHasNoSecrets(t *testing.T) {
	r := newRepository(t)
	r.write("a.py", "x = 1\n", "excluded.env", "A=1\n")
	r.commit()
	const secret = "hunter2hunter2"
	key := strings.Repeat("Zm9vYmFy", 8)
	r.write("a.py", strings.Join([]string{
		"x = 1", `API_KEY = "` + secret + `"`, `password='` + secret + `' # don't`, "export HF_TOKEN=" + secret, `{"token": "` +
			secret + `", "lr": 0.1}`,
		"secret: " + secret, `wandb.login(key="` + secret + `")`, `dict(api_key = '` + secret + `')`,
		"-----BEGIN RSA PRIVATE KEY-----", key, key[:20], "-----END RSA PRIVATE KEY-----", `k = "-----BEGIN PRIVATE KEY-----\n` + key +
			`\n-----END PRIVATE KEY-----"`,
		"print('of-the-environment')", "learning_rate = 0.5", "it's fine", "last: line",
	}, "\n"), "excluded.env", "A="+secret+"\n")
	request := r.request(Git)
	request.Environ = append(request.Environ, "MY_TOKEN=of-the-environment")
	request.Exclude = []string{"*.env"}
	c := r.copies(request)
	for _, hidden := range []string{secret, key[:20], "of-the-environment"} {
		if strings.Contains(c.diff, hidden) {
			t.Errorf("%q is in the diff:\n%s", hidden, c.diff)
		}
	}
	for _, kept := range []string{" x = 1\n", "+API_KEY = ***\n", "+learning_rate = 0.5\n", "+it's fine\n", "+last: line\n",
		`"lr": 0.1}`, "+print('***')\n"} {
		if !strings.Contains(c.diff, kept) {
			t.Errorf("%q is not in the diff:\n%s", kept, c.diff)
		}
	}
	if len(c.record.Changed) != 1 || strings.Contains(c.diff, "excluded.env") {
		t.Errorf("what is excluded is in the record: %q\n%s", c.record.Changed, c.diff)
	}
	if strings.Contains(string(c.read("a.py")), redact.Blank) {
		t.Error("the copy itself is changed")
	}
}

// TestDiffIsBounded: the diff is bounded as a whole, and in each of its lines.
func TestDiffIsBounded(t *testing.T) {
	r := newRepository(t)
	r.write("a.txt", "1\n", "b.txt", "1\n")
	r.commit()
	r.write("a.txt", strings.Repeat("x", 2*maxDiffLine)+"\n2\n", "b.txt", strings.Repeat("a line of 22 characters\n", maxDiff/20))
	c := r.copies(r.request(Git))
	if !c.record.DiffCut || len(c.diff) > maxDiff || len(c.diff) < maxDiff/2 ||
		!strings.Contains(c.diff, "+(a line of more than 64 KiB)\n+2\n") {
		t.Errorf("cut: %v, %d bytes, beginning with %q", c.record.DiffCut, len(c.diff), c.diff[:min(len(c.diff), 500)])
	}
	var to bytes.Buffer
	broken := errors.New("broken")
	if err := blankSecrets(&brokenReader{[]byte("+a\n+b"), broken}, &to, redact.ValuesOf(nil)); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}

type brokenReader struct {
	text []byte
	err  error
}

func (r *brokenReader) Read(p []byte) (int, error) {
	if len(r.text) == 0 {
		return 0, r.err
	}
	n := copy(p, r.text)
	r.text = r.text[n:]
	return n, nil
}

// FuzzBlankSecrets: blankSecrets never fails, keeps the number of lines of a diff, and hides the value that is assigned to a secret.
func FuzzBlankSecrets(f *testing.F) {
	f.Add("+a = 1\n-b\n")
	f.Add(" 0000!  \"000000000000000000000000000000KEY=000000\n")
	f.Add("+-----BEGIN PRIVATE KEY-----\n+x\n+-----END PRIVATE KEY-----")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) >= maxDiffLine {
			return
		}
		const secret = "s3cr3ts3cr3t"
		text = strings.ReplaceAll(text, secret, "") + "\n+API_KEY=" + secret + "\n"
		var to bytes.Buffer
		if err := blankSecrets(strings.NewReader(text), &to, redact.ValuesOf(nil)); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(to.String(), secret) || strings.Count(to.String(), "\n") != strings.Count(text, "\n") {
			t.Errorf("%q became %q", text, to.String())
		}
	})
}

// TestLiveImports checks what leads from an environment to the tree.
func TestLiveImports(t *testing.T) {
	r := newTree(t)
	r.write("src/pkg/__init__.py", "", "job/job.toml", "", "run.py", "")
	environment, other := newTree(t), newTree(t)
	site := "lib/python3.11/site-packages/"
	environment.write(
		site+"__editable__.one-1.pth", r.path("src")+"\n",
		site+"comment.pth", "# "+r.dir+"\nimport sys; sys.path.append('"+r.dir+"')\n\n",
		site+"elsewhere.pth", other.dir+"\n",
		site+"gone.pth", r.path("gone")+"\n",
		site+"relative.pth", "../../../own\n",
		site+"easy.egg-link", r.dir+"\n"+other.dir,
		site+"two-1.dist-info/direct_url.json", `{"dir_info": {"editable": true}, "url": "file://`+r.path("src/pkg")+`"}`,
		site+"three-1.dist-info/direct_url.json", `{"dir_info": {}, "url": "file://`+r.path("job")+`"}`,
		site+"four-1.dist-info/direct_url.json", `{"dir_info": {"editable": true}, "url": "https://x/`+r.path("job")+`"}`,
		site+"bad-1.dist-info/direct_url.json", `{"dir_info": 3`,
		site+"plain-1.dist-info/METADATA", ``,
	)
	environment.must(os.MkdirAll(environment.path("own"), 0o755))
	request := r.request(Copy)
	request.WorkDir = r.dir
	s, err := request.Select(t.Context())
	r.must(err)
	got := map[string]string{}
	for _, live := range s.LiveImports(environment.dir) {
		got[strings.TrimPrefix(live.File, environment.path(site)+"/")] = live.InTree
		if !strings.Contains(live.String(), live.File) {
			t.Errorf("%s", live)
		}
	}
	want := map[string]string{"__editable__.one-1.pth": "src", "easy.egg-link": ".", "two-1.dist-info": "src/pkg"}
	if len(got) != len(want) {
		t.Errorf("found %q", got)
	}
	for file, leads := range want {
		if got[file] != leads {
			t.Errorf("%s leads to %q, want %q", file, got[file], leads)
		}
	}
	if found := s.PathImports(other.dir + ":src::" + r.path("src")); len(found) != 1 || found[0].InTree != "src" {
		t.Errorf("PYTHONPATH: %v", found)
	}
	if rel, ok := s.Has(r.path("run.py")); !ok || rel != "run.py" {
		t.Errorf("run.py: %q, %v", rel, ok)
	}
	if _, ok := s.Has(filepath.Join(other.dir, "x")); ok {
		t.Error("a file that is not there is in the copy")
	}
}
