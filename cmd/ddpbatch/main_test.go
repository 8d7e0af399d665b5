package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"ddpbatch/internal/proc"
	"ddpbatch/internal/testkit"
)

// program is the path of ddpbatch as it is shipped. PATH finds it, too.
var program string

// TestMain builds the program. The package's own code runs in the test's process, where the race detector sees it. If that process starts
// its own executable, as an agent's guard or as the copy in a run directory, that acts as the program.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == siteProgram {
		e := osEnv()
		e.SiteFile = filepath.Join(e.Dir, "site.toml")
		os.Exit(Main(context.Background(), e, os.Args))
	}
	if filepath.Base(os.Args[0]) == "ddpbatch" || len(os.Args) > 1 && os.Args[1] == proc.GuardCommand {
		main()
	}
	syscall.Umask(0o022) // ddpbatch refuses a folder of runs that the group may write to
	os.Exit(testkit.WithProgram(func(built string) int {
		program = built
		links, err := linkSiteProgram()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(links)
		os.Setenv("PATH", filepath.Dir(program)+":"+links+":"+os.Getenv("PATH"))
		return m.Run()
	}))
}

// siteProgram is the name of a ddpbatch that reads the site's file from the working directory (site.toml). The shipped program has a fixed
// path for the site's file.
const siteProgram = "ddpbatch-of-site"

// linkSiteProgram makes a folder for PATH in which siteProgram is a link to this test's executable.
func linkSiteProgram() (folder string, err error) {
	own, err := os.Executable()
	if err != nil {
		return "", err
	}
	if folder, err = os.MkdirTemp("", "ddpbatch-site-"); err != nil {
		return "", err
	}
	return folder, os.Symlink(own, filepath.Join(folder, siteProgram))
}

// TestScriptsRunAsWritten runs testdata/script/*.txtar: what a user types, and the results. No process of a script may outlive it.
func TestScriptsRunAsWritten(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("DDPBATCH", program) // for scripts that change PATH
			env.Defer(func() {
				if t := env.T().(testing.TB); !t.Failed() { // the background processes of a failed script are ended later
					noSurvivors(t, env.WorkDir)
				}
			})
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits": exits, "flipbit": flipBit, "cuthalf": cutHalf, "tabs": tabs,
		},
	})
}

// exits runs a command and checks its exit code: exits 2 ddpbatch check job.toml.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code command...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if err != nil {
		coded, ok := err.(interface{ ExitCode() int })
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = coded.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// oneFile returns the file that a pattern matches: the last one in the order of names, if there are several.
func oneFile(ts *testscript.TestScript, pattern string) string {
	paths, err := filepath.Glob(ts.MkAbs(pattern))
	ts.Check(err)
	if len(paths) == 0 {
		ts.Fatalf("no file matches %s", pattern)
	}
	return paths[len(paths)-1]
}

// flipBit flips one bit in the middle of the last file that a pattern matches.
func flipBit(ts *testscript.TestScript, neg bool, args []string) {
	path := oneFile(ts, args[0])
	data, err := os.ReadFile(path)
	ts.Check(err)
	data[len(data)/2] ^= 1
	ts.Check(os.WriteFile(path, data, 0o600))
}

// tabs replaces each <TAB> in a file of typed input (ttyin) with a tab character.
func tabs(ts *testscript.TestScript, neg bool, args []string) {
	path := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(path, []byte(strings.ReplaceAll(ts.ReadFile(args[0]), "<TAB>", "\t")), 0o600))
}

// cutHalf cuts the last file that a pattern matches to half its length.
func cutHalf(ts *testscript.TestScript, neg bool, args []string) {
	path := oneFile(ts, args[0])
	info, err := os.Stat(path)
	ts.Check(err)
	ts.Check(os.Truncate(path, info.Size()/2))
}
