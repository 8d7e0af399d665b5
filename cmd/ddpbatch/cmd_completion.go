package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
	"ddpbatch/templates"
)

func newCompletionCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:        "completion",
		Usage:       "print a shell script that completes ddpbatch's commands, flags, job ids and keys",
		ArgsUsage:   strings.Join(templates.Shells(), " | "),
		Description: example("source <(ddpbatch completion bash)", "ddpbatch completion fish >~/.config/fish/completions/ddpbatch.fish"),
		Action: withArg("shell", func(c *cli.Context, shell string) error {
			script, ok := templates.Completion(shell)
			if !ok {
				return &usage.Error{
					Message: fmt.Sprintf("no completion for the shell %s", text.Quoted(shell, 60)), Hint: "name " +
						text.Choice(templates.Shells()),
				}
			}
			_, err := io.WriteString(e.Out, script)
			return err
		}),
	}
}

// newCompleteCommand returns the command that a shell's completion script calls. It is hidden because users do not type it. It never fails:
// an error message would only disturb the user's typing.
func newCompleteCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:            "complete",
		Usage:           "print completions of the last word (for the shells)",
		ArgsUsage:       "SHELL WORD...",
		Hidden:          true,
		SkipFlagParsing: true,
		Action: func(c *cli.Context) error {
			words := c.Args().Tail()
			for i, word := range words { // zsh has removed the quotes, and fish those of complete words
				if shell := c.Args().First(); shell == "bash" || shell == "fish" && i == len(words)-1 {
					words[i] = unquoteWord(word)
				}
			}
			find := newCompleter(e)
			_, err := io.WriteString(e.Out, completionText(find.complete(words)))
			return err
		},
	}
}

// newCompleter returns e's completer. It silently leaves out what cannot be read.
func newCompleter(e *env) completer {
	return completer{
		commands: newApp(e).Commands,
		dir: func(path string) string {
			if rest, ok := strings.CutPrefix(path, "~/"); ok {
				path = filepath.Join(e.get("HOME"), rest)
			}
			return e.abs(path)
		},
		runs: func() string {
			d, _ := e.defaultsPlaces().Read() // after an error it has no directory, as in runsFolder
			return cmp.Or(d.RunDir(), e.abs("runs"))
		},
		starters: func() (names []string) {
			own, _ := e.defaultsPlaces().Starters()
			for _, starter := range own {
				names = append(names, starter.Name)
			}
			return names
		},
	}
}

// plainWord matches words that need no quotes in any shell. Nothing else is offered, because names of files may come from other users.
var plainWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.,:=/@%+-]+$`) })

// completionText formats a completion for the scripts (templates.Completion).
func completionText(to completion) string {
	var b strings.Builder
	if b.WriteString("words"); to.files != "" {
		b.Reset()
		b.WriteString(to.files)
	}
	if to.open {
		b.WriteString(" open")
	}
	b.WriteByte('\n')
	for _, way := range to.ways {
		if plainWord().MatchString(way.word) {
			fmt.Fprintf(&b, "%s\t%s\n", way.word, text.Clean(way.help))
		}
	}
	return b.String()
}

// unquoteWord returns the meaning of a typed word in bash. The word may lack its closing quote. Variables and commands that bash would
// replace stay unchanged.
func unquoteWord(typed string) string {
	var b strings.Builder
	var quote byte
	for i := 0; i < len(typed); i++ {
		switch c := typed[i]; {
		case c == '\\' && quote != '\'' && i+1 < len(typed):
			if i++; quote == '"' && !strings.ContainsRune("\"\\$`", rune(typed[i])) {
				b.WriteByte('\\')
			}
			b.WriteByte(typed[i])
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case c == quote && quote != 0:
			quote = 0
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}
