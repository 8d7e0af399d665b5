package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
	"pgregory.net/rapid"

	"ddpbatch/slurm"
	"ddpbatch/templates"
)

// completions returns the words that a completion offers. In brackets is what the shell itself completes.
func completions(c *completer, words ...string) (list []string) {
	to := c.complete(words)
	for _, way := range to.ways {
		list = append(list, way.word)
	}
	if to.files != "" {
		list = append(list, "["+to.files+"]")
	}
	return list
}

// completerIn returns a completer for a user whose working directory is dir. The user's files are in dir/ddpbatch.
func completerIn(dir string) *completer {
	c := newCompleter(&env{Dir: dir, SiteFile: filepath.Join(dir, "site.toml"), Environ: []string{"HOME=" + dir, "XDG_CONFIG_HOME=" + dir}})
	return &c
}

func TestCompletions(t *testing.T) {
	dir := t.TempDir()
	for _, runs := range []string{"runs", "my runs"} {
		if err := os.MkdirAll(filepath.Join(dir, runs, "mnist-20261121-101500-1a2b3c4d", "tasks", "4"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{"runs/.job-mnist-123", "my runs/.job-mnist-77"} {
		if err := os.Symlink("mnist-20261121-101500-1a2b3c4d", filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, own := range []string{"mine.toml", "mnist.toml", "no toml"} {
		path := filepath.Join(dir, "ddpbatch", "templates", own)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	const run = "mnist-20261121-101500-1a2b3c4d"
	c := completerIn(dir)
	for line, want := range map[string]string{
		"subm":                        "submit",
		"ckpt s":                      "show",
		"attem":                       "", // hidden
		"nonesuch ":                   "",
		"ckpt nonesuch ":              "",
		"--ver":                       "--version",
		"check ":                      "[files]",
		"check job.toml ":             "", // one is enough
		"submit job.toml --te":        "--test-only",
		"submit --dry-run --dr":       "", // already given
		"submit --set a=b --se":       "--set",
		"submit --set launch.mode=ta": "launch.mode=task",
		"submit --set=launch.mode=ta": "--set=launch.mode=task",
		"submit --script-template ":   "[files]",
		"submit --script-template=":   "[files]",
		"submit --dry-run=":           "",
		"submit job.toml -- --q":      "", // sbatch's
		"simulate -- tr":              "[files]",
		"status ":                     "123 " + run,
		"status 12":                   "123",
		"status 123 12":               "123", // takes several
		"logs 123 12":                 "",    // takes one
		"logs 123_":                   "123_4",
		"logs mn":                     run,
		"logs ru":                     "[folders]",
		"logs runs/":                  "[folders]",
		"logs ./1":                    "[folders]",
		"cancel --runs|my runs|":      "77 " + run,
		"cancel --runs=nonesuch ":     "[folders]",
		"resume --runs ":              "[folders]",
		"resume --runs=":              "[folders]",
		"ckpt diff ":                  "123 " + run,
		"ckpt diff w.s":               "[files]",
		"ckpt import ":                "[files]",
		"ckpt export 123 w":           "[files]",
		"ckpt show 123 ":              "",
		"ckpt import w.safetensors ":  "[folders]",
		"env --format j":              "json",
		"run --gpus ":                 "all one auto",
		"run --numa_binding=s":        "--numa_binding=socket",
		"run -r 3 --nproc-per-node ":  "gpu cpu auto",
		"run train.py --gpu":          "[files]", // the script's own flags
		"run -- pyth":                 "[files]",
		"rehearse --fault te":         "term",
		"completion ":                 "bash zsh fish",
		"bench allr":                  "allreduce",
		"init --template mn":          "mnist",
		"init --template m":           "mine mnist", // a user's template hides the built-in one of the same name
		"init --template=mi":          "--template=mine",
		"submit --after ":             "123 " + run,
		"submit --after 123:":         "123:any 123:ok 123:notok",
		"submit --after=123:n":        "--after=123:notok",
		"submit --set slurm.ch":       "slurm.chain=",
		"submit --set sweep.mode=z":   "sweep.mode=zip",
		"status --sort ":              "", // a metric
		"conf":                        "config",
		"config ":                     "show path",
		"config show ":                "[files]",
		"config show j.toml --or":     "--origin",
		"config show j.toml ":         "",
		"config path ":                "",
		"check --set script_t":        "script_template=",
		"version ":                    "",
		"logs --":                     "--follow --rank --attempt --runs --help",
		"logs -":                      "--follow -f --rank --attempt --runs --help",
		"nodes expand ":               "",
		"store get --addr h:1 ":       "",
		"check --set|launch.hang|--set|launch.gpus=|": "[files]",
	} {
		words := strings.Split(line, " ")
		if strings.Contains(line, "|") {
			words = strings.Split(strings.Replace(line, " ", "|", 1), "|")
		}
		if got := strings.Join(completions(c, words...), " "); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
	if got := completions(c); got != nil {
		t.Errorf("no words: %q", got)
	}
}

// Completion lists the runs in run_dir of the defaults, or in runs if the defaults cannot be read.
func TestCompletedRunsAreWhereCommandsLook(t *testing.T) {
	dir := t.TempDir()
	for _, runs := range []string{"runs", "of site", "of user"} {
		if err := os.MkdirAll(filepath.Join(dir, runs), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, id := range map[string]string{"runs": "1", "of site": "2", "of user": "3"} {
		if err := os.Symlink("x", filepath.Join(dir, link, ".job-x-"+id)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ name, site, user, want string }{
		{"no file", "", "", "1"},
		{"the site's", `run_dir = "` + dir + `/of site"`, "", "2"},
		{"both", `run_dir = "` + dir + `/of site"`, `run_dir = "~/of user"`, "3"},
		{"a fault", `run_dir = "` + dir + `/of site"`, "run_dir = 1", "1"},
		{"no TOML", "[[[", "", "1"},
	} {
		for file, text := range map[string]string{"site.toml": test.site, "ddpbatch/config.toml": test.user} {
			path := filepath.Join(dir, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("HOME", dir) // the home directory to which ~ in run_dir refers
		if got := strings.Join(completions(completerIn(dir), "cancel", ""), " "); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// Each word that completion offers for a flag's value occurs in the flag's help.
func TestCompletedWordsAreInHelp(t *testing.T) {
	lists := 0
	eachCommand(newApp(&env{}).Commands, "", func(path string, c *cli.Command) {
		for _, f := range c.Flags {
			words := flagWords(path, f.Names()[0])
			if len(words) > 0 {
				lists++
			}
			help := f.(cli.DocGenerationFlag).GetUsage()
			for _, word := range words {
				if path != "init" &&
					!slices.Contains(strings.FieldsFunc(help, func(r rune) bool { return strings.ContainsRune(" ,:;()`", r) }), word) {
					t.Errorf("%s --%s: %s is offered, and help says %q", path, f.Names()[0], word, help)
				}
			}
		}
	})
	if lists < 12 {
		t.Errorf("only %d flags have words: one was renamed", lists)
	}
}

func eachCommand(commands []*cli.Command, before string, do func(path string, c *cli.Command)) {
	for _, c := range commands {
		path := strings.TrimSpace(before + " " + c.Name)
		if len(c.Subcommands) > 0 {
			eachCommand(c.Subcommands, path, do)
		} else {
			do(path, c)
		}
	}
}

// Whatever was typed, completion does not panic, each word that it offers continues the typed one, and the answer holds nothing that a
// shell or a terminal would obey.
func TestCompletionsGoOnFromAnything(t *testing.T) {
	c := completerIn(t.TempDir())
	var known []string
	eachCommand(c.commands, "", func(path string, command *cli.Command) {
		known = append(known, strings.Fields(path)...)
		for _, f := range command.Flags {
			known = append(known, "--"+f.Names()[0])
		}
	})
	known = append(known, "--", "-", "", "--set=", "--set", "~/")
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(known), rapid.String()), 1, 6).Draw(t, "words")
		typed := words[len(words)-1]
		to := c.complete(words)
		for _, way := range to.ways {
			if !strings.HasPrefix(way.word, typed) {
				t.Fatalf("%q does not continue %q", way.word, typed)
			}
		}
		for row := range strings.Lines(completionText(to)) {
			if word, _, isWay := strings.Cut(row, "\t"); isWay && !plainWord().MatchString(word) {
				t.Fatalf("%q is offered", word)
			}
		}
	})
}

func TestCompletionHoldsNoHostileName(t *testing.T) {
	to := completion{ways: []way{{"a b", ""}, {"$(x)", ""}, {"x\x1b]0;y\a", ""}, {"a;b", ""}, {"a\nb", ""}, {"", ""},
		{"ok", "two\nlines\tand \x1b[31mred"}}, open: true}
	if got, want := completionText(to), "words open\nok\ttwo lines and  [31mred\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A quoted word comes back unquoted. The last quote may be open.
func TestWordsAreUnquotedAsBashDoes(t *testing.T) {
	for typed, want := range map[string]string{
		`a\ b`: "a b", `'a b`: "a b", `"a b`: "a b", `"a\"b"`: `a"b`, `"a\b"`: `a\b`, `'a\b'`: `a\b`, `a'b'"c"`: "abc", `a\`: `a\`,
		`"$x"`: "$x", "$(rm x)": "$(rm x)", "": "",
	} {
		if got := unquoteWord(typed); got != want {
			t.Errorf("%s: %q, want %q", typed, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		word := strings.ReplaceAll(rapid.String().Draw(t, "word"), "\x00", "")
		if got := unquoteWord(slurm.ShellQuote(word)); got != word {
			t.Fatalf("%q, want %q", got, word)
		}
	})
}

func TestCompletionScriptsAreScripts(t *testing.T) {
	for _, shell := range templates.Shells() {
		script, ok := templates.Completion(shell)
		if !ok || !strings.Contains(script, "complete "+shell) {
			t.Errorf("%s: %.80q", shell, script)
		}
	}
	if _, ok := templates.Completion("../jobs/mnist.toml"); ok {
		t.Error("there is a script for no shell")
	}
}
