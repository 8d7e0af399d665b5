package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/usage"
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
				return unknownCommand(c, c.App.Commands)
			case c.Bool("version"):
				fmt.Fprintln(e.Out, versionString())
				return nil
			}
			return cli.ShowAppHelp(c)
		},
		Commands: []*cli.Command{
			newInitCommand(e), newCheckCommand(e), newRenderCommand(e), newSubmitCommand(e),
			newRunCommand(e), newTrainCommand(e), newSimulateCommand(e), newRehearseCommand(e), newEnvCommand(e), newNodesCommand(e),
			newStatusCommand(e), newLogsCommand(e), newCancelCommand(e), newResumeCommand(e),
			newCkptCommand(e), newBenchCommand(e), newStoreCommand(e), newVersionCommand(e), newAttemptCommand(e), newGuardCommand(e),
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
				return unknownCommand(ctx, commands)
			}
			return cli.ShowSubcommandHelp(ctx)
		}
	}
}

func onUsageError(c *cli.Context, err error, _ bool) error {
	return &usage.Error{Message: flagMessage(c.Command.Flags, err), Hint: tryHelp(c)}
}

// flagMessage is the flag package's error for a person: of a value that it cannot read it does not say what it should be.
func flagMessage(flags []cli.Flag, err error) string {
	message := strings.TrimPrefix(err.Error(), "flag ")
	text, unread := strings.CutSuffix(message, ": parse error")
	at := strings.LastIndex(text, " for flag -")
	if !unread || at < 0 {
		return message
	}
	value, name := strings.TrimPrefix(text[:at], "invalid value "), strings.TrimLeft(text[at+len(" for flag "):], "-")
	want := "number"
	for _, f := range flags {
		if !slices.Contains(f.Names(), name) {
			continue
		}
		switch f.(type) {
		case *cli.DurationFlag:
			want = "time with a unit, such as 90s or 10m"
		case *cli.IntFlag, *cli.Int64Flag:
			want = "whole number"
		}
	}
	return fmt.Sprintf("%s for --%s is no %s", value, name, want)
}

// tryHelp names the help of the command that runs.
func tryHelp(c *cli.Context) string { return fmt.Sprintf("try %q", c.Command.HelpName+" -h") }

// unknownCommand says which of the commands may be meant: the only one that begins so, or one with a slip.
func unknownCommand(c *cli.Context, commands []*cli.Command) error {
	name, hint := c.Args().First(), tryHelp(c)
	var names, begin []string
	for _, command := range commands {
		if command.Hidden {
			continue
		}
		names = append(names, command.Name)
		if strings.HasPrefix(command.Name, name) {
			begin = append(begin, command.Name)
		}
	}
	near := jobfile.Nearest(name, names)
	if len(begin) == 1 {
		near = begin[0]
	}
	if near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return &usage.Error{Message: fmt.Sprintf("there is no command %q", name), Hint: hint}
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
		return &usage.Error{
			Message: fmt.Sprintf("%s takes no arguments, and not %q", c.Command.Name, c.Args().First()),
			Hint:    tryHelp(c),
		}
	}
	return nil
}

// oneArg returns the command's only argument.
func oneArg(c *cli.Context, what string) (string, error) {
	words, _, _ := splitDash(c.Args().Slice())
	if len(words) != 1 {
		return "", &usage.Error{
			Message: fmt.Sprintf("%s takes one %s, not %d", c.Command.Name, what, len(words)),
			Hint:    tryHelp(c),
		}
	}
	return words[0], nil
}
