package main

import (
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

// completions are the words that a completion offers, or in brackets what the shell is to.
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

func newCompleter(dir string) *completer {
	within := func(path string) string { return filepath.Join(dir, path) }
	return &completer{commands: newApp(&env{}).Commands, dir: within, runs: within("runs")}
}

func TestCompletions(t *testing.T) {
	dir := t.TempDir()
	for _, runs := range []string{"runs", "my runs"} {
		if err := os.MkdirAll(filepath.Join(dir, runs, "mnist-20261121-101500-1a2b3c4d", "tasks", "4"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{"runs/mnist-123", "my runs/mnist-77"} {
		if err := os.Symlink("mnist-20261121-101500-1a2b3c4d", filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	const run = "mnist-20261121-101500-1a2b3c4d"
	c := newCompleter(dir)
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
		"submit --dry-run --dr":       "", // given already
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
		"status 123 12":               "123", // several
		"logs 123 12":                 "",    // one
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

// TestCompletedWordsAreInHelp: a word that is offered for a flag's value is one that its help names.
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
				if path != "init" && !slices.Contains(strings.FieldsFunc(help, func(r rune) bool { return strings.ContainsRune(" ,:;()`", r) }), word) {
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

// TestCompletionsGoOnFromAnything: whatever was typed, nothing panics, each way goes on from it, and the answer holds nothing that a shell
// or a terminal would obey.
func TestCompletionsGoOnFromAnything(t *testing.T) {
	c := newCompleter(t.TempDir())
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
				t.Fatalf("%q is no way on from %q", way.word, typed)
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
	to := completion{ways: []way{{"a b", ""}, {"$(x)", ""}, {"x\x1b]0;y\a", ""}, {"a;b", ""}, {"a\nb", ""}, {"", ""}, {"ok", "two\nlines\tand \x1b[31mred"}}, open: true}
	if got, want := completionText(to), "words open\nok\ttwo lines and  [31mred\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestWordsAreUnquotedAsBashDoes: what is quoted comes back, and a quote may be open.
func TestWordsAreUnquotedAsBashDoes(t *testing.T) {
	for typed, want := range map[string]string{
		`a\ b`: "a b", `'a b`: "a b", `"a b`: "a b", `"a\"b"`: `a"b`, `"a\b"`: `a\b`, `'a\b'`: `a\b`, `a'b'"c"`: "abc", `a\`: `a\`, `"$x"`: "$x", "$(rm x)": "$(rm x)", "": "",
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
