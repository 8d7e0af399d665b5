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
		Usage:       "print the script by which a shell completes ddpbatch's commands, flags, job ids and keys",
		ArgsUsage:   strings.Join(templates.Shells(), " | "),
		Description: example("source <(ddpbatch completion bash)", "ddpbatch completion fish >~/.config/fish/completions/ddpbatch.fish"),
		Action: withArg("shell", func(c *cli.Context, shell string) error {
			script, ok := templates.Completion(shell)
			if !ok {
				return &usage.Error{
					Message: fmt.Sprintf("there is no completion for %s", text.Quoted(shell, 60)), Hint: "name " +
						text.Choice(templates.Shells()),
				}
			}
			_, err := io.WriteString(e.Out, script)
			return err
		}),
	}
}

// newCompleteCommand is what a shell's completion script asks; it is hidden, as nobody types it. It never fails: while somebody types, an
// error message would only get in the way.
func newCompleteCommand(e *env) *cli.Command {
	return &cli.Command{
		Name:            "complete",
		Usage:           "print how the last word goes on (the shells' own)",
		ArgsUsage:       "SHELL WORD...",
		Hidden:          true,
		SkipFlagParsing: true,
		Action: func(c *cli.Context) error {
			words := c.Args().Tail()
			for i, word := range words { // zsh has taken the quotes away, and fish those of whole words
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

// newCompleter is e's completer. What cannot be read is not offered, and nothing is said of it.
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
			d, _ := e.defaultsPlaces().Read() // with an error it names no folder, as runsFolder has it
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

// plainWord matches what stands for itself in every shell. Nothing else is offered: names of files may come from other users.
var plainWord = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.,:=/@%+-]+$`) })

// completionText writes a completion as the scripts read it (templates.Completion).
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

// unquoteWord is what a word means to bash that was typed so; one that is being typed may lack the quote at its end. What bash would
// replace (a variable, a command) stays as it is.
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
