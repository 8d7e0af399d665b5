package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
	"pgregory.net/rapid"
)

func TestPermute(t *testing.T) {
	for line, want := range map[string]string{
		"submit job.toml --dry-run":                  "submit --dry-run -- job.toml",
		"submit --set a=1 job.toml --set b=2":        "submit --set a=1 --set b=2 -- job.toml",
		"submit job.toml --set=a=1 -- --qos=high x":  "submit --set=a=1 -- job.toml -- --qos=high x",
		"submit -- --qos=high":                       "submit -- -- --qos=high",
		"simulate --nodes 3 -- sh -c x":              "simulate --nodes 3 -- -- sh -c x",
		"resume 12 --follow -- --hold":               "resume --follow -- 12 -- --hold",
		"logs 12 -f":                                 "logs -f -- 12",
		"logs 12 --rank -1":                          "logs --rank -1 -- 12",
		"check -- -job.toml --json":                  "check -- -job.toml --json", // it has no command to hand on to, so all are words
		"check a.toml -- b.toml":                     "check -- a.toml b.toml",
		"status - --json":                            "status --json -- -",
		"status --nosuch 12":                         "status --nosuch -- 12", // the parser reports it
		"status 12 --runs":                           "status --runs",         // the parser reports the missing value
		"nodes expand n[1-2] --json":                 "nodes expand --json -- n[1-2]",
		"nodes --json expand":                        "nodes --json expand",
		"ckpt verify 12 3 --json":                    "ckpt verify --json -- 12 3",
		"run script.py --standalone":                 "run script.py --standalone",
		"run --nproc-per-node 2 x.py --json -- -- y": "run --nproc-per-node 2 x.py --json -- -- y",
		"submit job.toml -h":                         "submit -h", // without job.toml, which would be looked up among its subcommands
		"ckpt ls 12 --json --help":                   "ckpt ls --help",
		"simulate -- sh -h":                          "simulate -- -- sh -h",
		"nosuch a --b":                               "nosuch a --b",
		"--version":                                  "--version",
		"":                                           "",
	} {
		app := newApp(&env{})
		got := permute(app, append([]string{"ddpbatch"}, strings.Fields(line)...))
		if !slices.Equal(got, append([]string{"ddpbatch"}, strings.Fields(want)...)) {
			t.Errorf("%q became %q, want %q", line, got[1:], want)
		}
	}
}

// Permuting only moves words. It loses, adds or changes none, except that it puts a -- before the words and may take one from among them.
func TestPermuteLosesNothing(t *testing.T) {
	flags := []cli.Flag{&cli.BoolFlag{Name: "all", Aliases: []string{"a"}}, &cli.StringFlag{Name: "set"}}
	word := rapid.SampledFrom([]string{"--all", "-a", "--set", "--set=x", "-set", "--", "-", "", "job", "--nosuch", "a b"})
	rapid.Check(t, func(t *rapid.T) {
		words, keepDash := rapid.SliceOf(word).Draw(t, "words"), rapid.Bool().Draw(t, "keepDash")
		words = append(words, "end") // so that no flag lacks its value: TestPermute covers that
		got := flagsFirst(flags, words, keepDash)
		for _, w := range words {
			if w != "--" && count(words, w) != count(got, w) {
				t.Fatalf("%q became %q: %q was lost or made", words, got, w)
			}
		}
		more := count(got, "--") - count(words, "--")
		if more < 0 || more > 1 || keepDash && more != 1 {
			t.Fatalf("%q became %q: %d more --", words, got, more)
		}
	})
}

func count(words []string, word string) int {
	n := 0
	for _, w := range words {
		if w == word {
			n++
		}
	}
	return n
}

func TestSplitDash(t *testing.T) {
	for _, row := range []struct {
		words, own, rest string
		dashed           bool
	}{
		{"a b", "a b", "", false},
		{"a -- b", "a", "b", true},
		{"-- b -- c", "", "b -- c", true},
		{"a --", "a", "", true},
	} {
		own, rest, dashed := splitDash(strings.Fields(row.words))
		if !slices.Equal(own, strings.Fields(row.own)) || !slices.Equal(rest, strings.Fields(row.rest)) || dashed != row.dashed {
			t.Errorf("%q: %q, %q, %t", row.words, own, rest, dashed)
		}
	}
}
