package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

func newApp(e *env) *cli.App {
	app := &cli.App{
		Name:                      "ddpbatch",
		Usage:                     "distributed training on Slurm clusters: submit, launch, train, save, resume",
		Description:               example("ddpbatch simulate", "ddpbatch init digits", "ddpbatch submit digits/job.toml --follow"),
		CustomAppHelpTemplate:     appHelpTemplate,
		Reader:                    e.In,
		Writer:                    e.Out,
		ErrWriter:                 e.Err,
		HideVersion:               true, // the library's flag would take -v, too
		Flags:                     []cli.Flag{&cli.BoolFlag{Name: "version", Usage: "print the version"}},
		DisableSliceFlagSeparator: true,
		Suggest:                   true,
		ExitErrHandler:            func(*cli.Context, error) {}, // exit codes are exitCode's alone
		OnUsageError:              onUsageError,
		Action: func(c *cli.Context) error {
			switch {
			case c.Args().Present():
				return unknownCommand(c.App.Commands, c.Args().First())
			case c.Bool("version"):
				fmt.Fprintln(e.Out, versionString())
				return nil
			}
			return cli.ShowAppHelp(c)
		},
		Commands: []*cli.Command{
			newInitCommand(e), newCheckCommand(e), newRenderCommand(e), newSubmitCommand(e),
			newRunCommand(e), newTrainCommand(e), newSimulateCommand(e), newEnvCommand(e), newNodesCommand(e),
			newStatusCommand(e), newLogsCommand(e), newCancelCommand(e), newResumeCommand(e),
			newCkptCommand(e), newBenchCommand(e), newStoreCommand(e), newVersionCommand(e), newAttemptCommand(e),
		},
	}
	for _, c := range app.Commands {
		prepare(c)
	}
	return app
}

// prepare gives a command and those below it what the library does not hand down.
func prepare(c *cli.Command) {
	c.OnUsageError = onUsageError
	c.HideHelpCommand = true
	c.CustomHelpTemplate = helpTemplate
	for _, f := range c.Flags {
		if b, ok := f.(*cli.BoolFlag); ok {
			b.DisableDefaultText = true // a switch is off until it is named
		}
	}
	for _, sub := range c.Subcommands {
		prepare(sub)
	}
	if len(c.Subcommands) > 0 && c.Action == nil {
		commands := c.Subcommands
		c.Action = func(ctx *cli.Context) error {
			if ctx.Args().Present() {
				return unknownCommand(commands, ctx.Args().First())
			}
			return cli.ShowSubcommandHelp(ctx)
		}
	}
}

func onUsageError(c *cli.Context, err error, _ bool) error {
	return &usageError{message: strings.TrimPrefix(err.Error(), "flag "), hint: tryHelp(c)}
}

// tryHelp names the help of the command that runs.
func tryHelp(c *cli.Context) string { return fmt.Sprintf("try %q", c.Command.HelpName+" -h") }

func unknownCommand(commands []*cli.Command, name string) error {
	hint := `try "ddpbatch -h"`
	// the library's suggestion is a whole sentence, Did you mean "train"?, and may be its own help command
	near := cli.SuggestCommand(commands, name)
	if _, word, _ := strings.Cut(strings.TrimSuffix(near, `"?`), `"`); find(commands, word) != nil {
		hint = strings.ToLower(near[:1]) + near[1:]
	}
	return &usageError{message: fmt.Sprintf("there is no command %q", name), hint: hint}
}

// jsonFlag is on every command that shows something.
func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print JSON with stable fields (docs/cli.md)"}
}

func setFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "set", Usage: "override a key of the job file: `a.b=value` (may be repeated)"}
}

// noArgs refuses words that a command would pass over.
func noArgs(c *cli.Context) error {
	if c.Args().Present() {
		return &usageError{
			message: fmt.Sprintf("%s takes no arguments, and not %q", c.Command.Name, c.Args().First()),
			hint:    tryHelp(c),
		}
	}
	return nil
}

// oneArg returns the command's only argument.
func oneArg(c *cli.Context, what string) (string, error) {
	words, _, _ := splitDash(c.Args().Slice())
	if len(words) != 1 {
		return "", &usageError{
			message: fmt.Sprintf("%s takes one %s, not %d", c.Command.Name, what, len(words)),
			hint:    tryHelp(c),
		}
	}
	return words[0], nil
}
