package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// TestManPageIsGolden compares the page of a small program that has everything a page can contain.
func TestManPageIsGolden(t *testing.T) {
	small := &cli.App{
		Name: "small", Usage: "is small - and smaller", Description: "small do\n.dotted 'quoted' \\n `tick`",
		Commands: []*cli.Command{
			{Name: "do", Usage: "do it", ArgsUsage: "FILE", Flags: []cli.Flag{
				&cli.StringFlag{Name: "runs", Aliases: []string{"r"}, Usage: "the `FOLDER` of \"runs\", .hidden or not", Value: "runs"},
				&cli.BoolFlag{Name: "secret", Hidden: true},
			}, Description: "small do --runs=x a\\b"},
			{Name: "hidden", Hidden: true},
			{Name: "many", Usage: "not shown", Subcommands: []*cli.Command{{Name: "one", Usage: ".one of many"}}},
		},
	}
	page := manPage(small, "1.2.3", "2026-11-26")
	before, rest, _ := strings.Cut(page, ".SH \"DESCRIPTION\"\n")
	_, rest, _ = strings.Cut(rest, ".SH \"COMMANDS\"\n")
	commands, rest, _ := strings.Cut(rest, ".SH \"EXIT STATUS\"\n")
	_, after, _ := strings.Cut(rest, ".SH \"EXAMPLES\"\n")
	golden := filepath.Join("testdata", "man", "small.1")
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got := before + commands + after; got != string(want) {
		t.Errorf("%s is\n%s\nwant\n%s", golden, got, want)
	}
	lintMan(t, page)
}

// The man page has the headings of man-pages(7) in its order, and each command, flag, exit code and variable.
func TestManPageHasEverything(t *testing.T) {
	app := newApp(&env{})
	page := manPage(app, version, "2026-11-26")
	var headings []string
	for _, m := range regexp.MustCompile(`(?m)^\.SH "(.*)"$`).FindAllStringSubmatch(page, -1) {
		headings = append(headings, m[1])
	}
	if want := []string{"NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "COMMANDS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES",
		"SEE ALSO"}; !slices.Equal(headings, want) {
		t.Errorf("headings %q, want %q", headings, want)
	}
	eachCommand(app.Commands, "", func(path string, c *cli.Command) {
		shown := strings.Contains(page, `.SS "ddpbatch `+path)
		hidden := c.Hidden || find(app.Commands, strings.Fields(path)[0]).Hidden
		if shown == hidden {
			t.Errorf("%s: hidden %v, shown %v", path, hidden, shown)
		}
		for _, f := range c.Flags {
			dashes := strings.Repeat("-", min(2, len(f.Names()[0])))
			if name := roffText.Replace(dashes + f.Names()[0]); !hidden && !strings.Contains(page, `.B "`+name) {
				t.Errorf("%s --%s is not there", path, f.Names()[0])
			}
		}
	})
	lintMan(t, page)
}

// lintMan checks a page with mandoc and groff.
func lintMan(t *testing.T, page string) {
	t.Helper()
	for _, check := range [][]string{{"mandoc", "-Tlint", "-Wstyle"}, {"groff", "-man", "-Tutf8", "-ww", "-z"}} {
		t.Run(check[0], func(t *testing.T) {
			if _, err := exec.LookPath(check[0]); err != nil {
				t.Skip(check[0], "is not installed")
			}
			command := exec.Command(check[0], check[1:]...)
			command.Stdin = strings.NewReader(page)
			out, err := command.CombinedOutput()
			if err != nil || len(out) > 0 {
				t.Errorf("%v: %v\n%s", check, err, out)
			}
		})
	}
}

// notForPeople lists the variables that ddpbatch's processes pass to each other, and those of its tests.
var notForPeople = []string{
	"DDPBATCH_ARRAY_OFFSET", "DDPBATCH_KILL_WAIT", "DDPBATCH_LISTEN", "DDPBATCH_OWN_CORES", "DDPBATCH_PORTS",
	"DDPBATCH_SETUP_FAILURE", "DDPBATCH_SIM_ADDRS",
}

// The man page lists each variable of ddpbatch that the code names, and no other.
func TestManPageNamesTheVariables(t *testing.T) {
	variable := regexp.MustCompile(`"(DDPBATCH_[A-Z_]+)[="]`)
	used := map[string]bool{}
	for _, top := range []string{"cmd", "internal", "mpi", "slurm", "trainer", "checkpoint"} {
		err := filepath.WalkDir(filepath.Join("..", "..", top), func(path string, d os.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "testkit":
				return filepath.SkipDir
			}
			if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return nil
			}
			text, err := os.ReadFile(path)
			if filepath.Base(path) != "cmd_man.go" {
				for _, m := range variable.FindAllStringSubmatch(string(text), -1) {
					used[m[1]] = true
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	listed := map[string]bool{}
	for _, v := range manVariables {
		for name := range strings.SplitSeq(v.name, ", ") {
			listed[name] = true
		}
	}
	for name := range used {
		if !listed[name] && !slices.Contains(notForPeople, name) {
			t.Errorf("the manual page does not name %s", name)
		}
	}
	for name := range listed {
		if strings.HasPrefix(name, "DDPBATCH_") && !used[name] {
			t.Errorf("the manual page names %s, and no code does", name)
		}
	}
}
