package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/torchrun"
)

// manual is what docs/cli.md says of each command: lines of its section, and rows of tables that begin with it.
type manual struct {
	intro    string              // of all commands
	rows     map[string][]string // by the words of a command: "ckpt ls"
	sections map[string][]string // by the first word
}

func readManual(t *testing.T) manual {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := manual{rows: map[string][]string{}, sections: map[string][]string{}}
	section, inCommands := "", false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		name, begins := strings.CutPrefix(line, "## ")
		switch {
		case begins:
			section = name
		case strings.HasPrefix(line, "| command |"):
			inCommands = true
		case !strings.HasPrefix(line, "|"):
			inCommands = false
		case inCommands && !strings.HasPrefix(line, "|---"):
			cell, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
			first := ""
			for _, span := range codeSpan.FindAllStringSubmatch(cell, -1) {
				words := strings.Join(lowerWords(span[1]), " ")
				if first != "" && !strings.HasPrefix(words, first) {
					words = first + " " + words // `store get`, `set`
				}
				if first == "" {
					first, _, _ = strings.Cut(words, " ")
				}
				m.rows[words] = append(m.rows[words], line)
			}
		}
		if section == "" && !strings.HasPrefix(line, "|") {
			m.intro += line + "\n"
		}
		m.sections[section] = append(m.sections[section], line)
	}
	return m
}

var (
	codeSpan = regexp.MustCompile("`([^`]+)`")
	flagWord = regexp.MustCompile(`(?:^|[\s,\[])(--?[a-z][a-z0-9-]*)`)
)

// lowerWords are the words of a command before its arguments: "ckpt ls" of "ckpt ls RUN".
func lowerWords(span string) []string {
	var words []string
	for _, word := range strings.Fields(span) {
		if strings.ToLower(word) != word || !regexp.MustCompile(`^[a-z]+$`).MatchString(word) {
			break
		}
		words = append(words, word)
	}
	return words
}

// flagsIn are the flags in the code of a text.
func flagsIn(text string) []string {
	var flags []string
	for _, span := range codeSpan.FindAllStringSubmatch(text, -1) {
		for _, match := range flagWord.FindAllStringSubmatch(span[1], -1) {
			flags = append(flags, match[1])
		}
	}
	return flags
}

// flagNames are a command's flags, all names of each together, as a user writes them.
func flagNames(c *cli.Command) [][]string {
	var all [][]string
	dashed := func(names ...string) {
		for i, name := range names {
			names[i] = "-" + name
			if len(name) > 1 {
				names[i] = "--" + name
			}
		}
		all = append(all, names)
	}
	for _, f := range c.Flags {
		if hidden, ok := f.(cli.VisibleFlag); !ok || hidden.IsVisible() {
			dashed(slices.Clone(f.Names())...)
		}
	}
	if c.Name == "run" {
		for _, f := range torchrun.Flags {
			names := []string{f.Name}
			if f.Short != 0 {
				names = append(names, string(f.Short))
			}
			if f.Old != "" {
				names = append(names, f.Old)
			}
			dashed(names...)
		}
	}
	return all
}

// foreign are flags of other programs that rows of the tables name: sbatch's, Python's, and the one of ddpbatch without a command.
var foreign = []string{"--cpus-per-gpu", "--tres-per-task", "--mincpus", "--overcommit", "-u", "--version"}

// TestFlagsAreTheDocumentedOnes: docs/cli.md names every command and each of its flags, and tables name no flag that a
// command does not have.
func TestFlagsAreTheDocumentedOnes(t *testing.T) {
	m := readManual(t)
	known := map[string]bool{}
	var visit func(c *cli.Command, path string) [][]string
	visit = func(c *cli.Command, path string) [][]string {
		known[path] = true
		flags := flagNames(c)
		parent, _, _ := strings.Cut(path, " ")
		rows := m.rows[path]
		if len(c.Subcommands) == 0 {
			if len(rows) == 0 {
				t.Errorf("docs/cli.md has no row for the command %q", path)
			}
			said := flagsIn(m.intro + strings.Join(rows, "\n") + "\n" + strings.Join(m.sections[parent], "\n"))
			if path == "rehearse" { // all flags of simulate hold, it says
				said = append(said, flagsIn(strings.Join(m.sections["simulate"], "\n"))...)
			}
			for _, names := range flags {
				if !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(said, name) }) {
					t.Errorf("docs/cli.md does not name %s of the command %q", names[0], path)
				}
			}
			notTheirs(t, path, rows, flags)
		}
		for _, sub := range c.Subcommands {
			flags = append(flags, visit(sub, path+" "+sub.Name)...)
		}
		if path == parent { // first columns of the section's tables of flags
			inFlags, cells := false, []string(nil)
			for _, line := range m.sections[path] {
				switch {
				case strings.HasPrefix(line, "| flag |"):
					inFlags = true
				case !strings.HasPrefix(line, "|"):
					inFlags = false
				case inFlags:
					cell, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
					cells = append(cells, cell)
				}
			}
			notTheirs(t, path, cells, flags)
		}
		return flags
	}
	for _, c := range newApp(&env{}).Commands {
		if !c.Hidden {
			visit(c, c.Name)
		}
	}
	for path := range m.rows {
		if !known[path] {
			t.Errorf("docs/cli.md has a row for the command %q, and there is none", path)
		}
	}
}

// notTheirs wants the flags in texts about a command to be among its own.
func notTheirs(t *testing.T, path string, texts []string, flags [][]string) {
	t.Helper()
	own := slices.Concat(flags...)
	for _, text := range texts {
		for _, flag := range flagsIn(text) {
			if !slices.Contains(own, flag) && !slices.Contains(foreign, flag) {
				t.Errorf("docs/cli.md names %s of the command %q, which does not have it", flag, path)
			}
		}
	}
}
