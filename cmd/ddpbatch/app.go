package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"ddpbatch/internal/text"
	"ddpbatch/internal/usage"
)

func newApp(e *env) *cli.App {
	app := &cli.App{
		Name:                      "ddpbatch",
		Usage:                     "distributed training on Slurm clusters: submit, launch, train, save, resume",
		Description:               example("ddpbatch simulate", "ddpbatch init first", "ddpbatch submit first/job.toml --follow"),
		CustomAppHelpTemplate:     appHelpTemplate,
		Reader:                    e.In,
		Writer:                    e.Out,
		ErrWriter:                 e.Err,
		HideVersion:               true, // the library's flag would also take -v
		Flags:                     []cli.Flag{&cli.BoolFlag{Name: "version", Usage: "print the version"}},
		DisableSliceFlagSeparator: true,
		Suggest:                   true,
		ExitErrHandler:            func(*cli.Context, error) {}, // exitCode alone decides about exit codes
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
			newInitCommand(e), newCheckCommand(e), newRenderCommand(e), newSubmitCommand(e), newConfigCommand(e),
			newRunCommand(e), newTrainCommand(e), newSimulateCommand(e), newRehearseCommand(e), newEnvCommand(e), newNodesCommand(e),
			newStatusCommand(e), newReportCommand(e), newLogsCommand(e), newCancelCommand(e), newResumeCommand(e),
			newCleanCommand(e), newAccountCommand(e), newShellCommand(e), newExecCommand(e), newStacksCommand(e),
			newCkptCommand(e), newDoctorCommand(e), newBenchCommand(e), newStoreCommand(e), newVersionCommand(e),
			newCompletionCommand(e), newManCommand(e), newCompleteCommand(e), newAttemptCommand(e), newGuardCommand(e),
			newDoctorTaskCommand(e), newBesideCommand(e),
		},
	}
	for _, c := range app.Commands {
		prepare(c)
	}
	return app
}

// prepare sets in a command and its subcommands what the library does not pass down.
func prepare(c *cli.Command) {
	c.OnUsageError = onUsageError
	c.HideHelpCommand = true
	c.CustomHelpTemplate = helpTemplate
	for _, f := range c.Flags {
		if b, ok := f.(*cli.BoolFlag); ok {
			b.DisableDefaultText = true // switches are off by default
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
	if name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); unknown {
		return unknownFlag(c, name)
	}
	return &usage.Error{Message: flagMessage(c.Command.Flags, err), Hint: tryHelp(c)}
}

// flagMessage returns the flag package's error for people. For an invalid value the package does not say which values are valid.
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
	return fmt.Sprintf("%s for --%s is not a %s", value, name, want)
}

// tryHelp refers to the help of the running command.
func tryHelp(c *cli.Context) string { return fmt.Sprintf("try %q", c.Command.HelpName+" -h") }

// unknownFlag names the flag that was probably meant. name is without dashes.
func unknownFlag(c *cli.Context, name string) error {
	dashes := func(name string) string {
		if len(name) == 1 {
			return "-" + name
		}
		return "--" + name
	}
	hint := tryHelp(c)
	var names []string
	for _, f := range c.Command.VisibleFlags() {
		names = append(names, f.Names()[0])
	}
	if near := meant(name, names); near != "" {
		hint = fmt.Sprintf("did you mean %s?", dashes(near))
	} else if c.Command.Name == "exec" {
		hint = `if it is a flag of the command, write "--" before the command`
	}
	return &usage.Error{Message: fmt.Sprintf("%s has no flag %s", commandLine(c), dashes(name)), Hint: hint}
}

// meant returns which of the names was probably meant: the only one with this beginning, or one that is similar. It returns "" if there is
// none.
func meant(name string, names []string) string {
	var begin []string
	for _, n := range names {
		if strings.HasPrefix(n, name) {
			begin = append(begin, n)
		}
	}
	if len(begin) == 1 {
		return begin[0]
	}
	return text.Nearest(name, names)
}

// unknownCommand names the command that was probably meant.
func unknownCommand(c *cli.Context, commands []*cli.Command) error {
	name, hint := c.Args().First(), tryHelp(c)
	var names []string
	for _, command := range commands {
		if !command.Hidden {
			names = append(names, command.Name)
		}
	}
	if near := meant(name, names); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	}
	return &usage.Error{Message: fmt.Sprintf("there is no command %q", name), Hint: hint}
}

// jsonFlag is the flag of all commands that show something.
func jsonFlag() cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print JSON with stable fields"}
}

func setFlag() cli.Flag {
	return &cli.StringSliceFlag{Name: "set", Usage: "override a key of the job file, as `KEY=VALUE` (may be repeated)"}
}

// oneArg returns the command's only argument.
func oneArg(c *cli.Context, what string) (string, error) {
	words, _, _ := splitDash(c.Args().Slice())
	if len(words) != 1 {
		return "", &usage.Error{
			Message: fmt.Sprintf("%s takes one %s, not %d", commandLine(c), what, len(words)),
			Hint:    tryHelp(c),
		}
	}
	return words[0], nil
}

// withArg returns the action of a command that takes one argument.
func withArg(what string, do func(c *cli.Context, arg string) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		arg, err := oneArg(c, what)
		if err != nil {
			return err
		}
		return do(c, arg)
	}
}

// checkWords returns an error for fewer words than least, or more than most (-1: any number).
func checkWords(c *cli.Context, least, most int) error {
	n := c.Args().Len()
	if n >= least && (most < 0 || n <= most) {
		return nil
	}
	says := fmt.Sprintf("takes %s, not %s", c.Command.ArgsUsage, text.Plural(n, "word"))
	switch {
	case n < least:
		says = "needs " + c.Command.ArgsUsage
	case most == 0:
		says = fmt.Sprintf("does not take arguments, but got %q", c.Args().First())
	}
	return &usage.Error{Message: commandLine(c) + " " + says, Hint: tryHelp(c)}
}

// commandLine returns the running command as it is written after the program's name.
func commandLine(c *cli.Context) string {
	return strings.TrimPrefix(c.Command.HelpName, c.App.Name+" ")
}

// helpTemplate is the help of a command: first an example, then what the command does and its arguments. The parts are the library's.
const helpTemplate = `{{if .Description}}Example:

   {{wrap .Description 3}}

{{end}}{{template "helpNameTemplate" .}}

Usage:

   {{template "usageTemplate" .}}{{if .VisibleCommands}}

Commands:
{{template "visibleCommandCategoryTemplate" .}}{{end}}{{if .VisibleFlags}}

Options:
{{template "visibleFlagTemplate" .}}{{end}}
`

// appHelpTemplate is the help of the program.
const appHelpTemplate = `Example:

   {{wrap .Description 3}}

{{template "helpNameTemplate" .}}

Commands:
{{template "visibleCommandCategoryTemplate" .}}

"ddpbatch COMMAND -h" begins with an example, too. Exit codes and JSON fields: docs/cli.
`

// example joins the command lines at the beginning of a help text.
func example(lines ...string) string { return strings.Join(lines, "\n") }

// permute moves a command's flags before its other words, so that `submit job.toml --dry-run` becomes `submit --dry-run job.toml`: the flag
// package stops at the first word that is not a flag, and would silently ignore the rest. Words after -- stay unchanged, and so do all of
// run's, which stops at its first word that is not a flag, as torchrun does.
func permute(app *cli.App, args []string) []string {
	commands := app.Commands
	for i := 1; i < len(args); i++ {
		command := find(commands, args[i])
		if command == nil {
			return args
		}
		if len(command.Subcommands) > 0 {
			commands = command.Subcommands
			continue
		}
		if command.SkipFlagParsing {
			return args
		}
		words := flagsFirst(command.Flags, args[i+1:], passesOn[command.Name])
		return append(args[:i+1:i+1], words...)
	}
	return args
}

// passesOn names the commands that pass the words after -- on to another one, and so must see the -- (see splitDash). For other commands
// these are ordinary words.
var passesOn = map[string]bool{"submit": true, "resume": true, "simulate": true, "rehearse": true, "exec": true}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// flagsFirst separates flags from other words, and puts a -- between them that ends the flags for the parser. A -- among the words stays in
// its place if keepDash is set. If -h is among the flags, nothing else is returned: with other words the flag package would look for help
// on a subcommand of that name.
func flagsFirst(flags []cli.Flag, words []string, keepDash bool) []string {
	var front, back []string
	for i := 0; i < len(words); i++ {
		w := words[i]
		if w == "--" {
			if !keepDash {
				i++
			}
			back = append(back, words[i:]...)
			break
		}
		if len(w) < 2 || w[0] != '-' {
			back = append(back, w)
			continue
		}
		if w == "-h" || w == "--help" {
			return []string{w}
		}
		front = append(front, w)
		if takesValue(flags, w) {
			if i++; i == len(words) {
				return front // the parser reports the missing value
			}
			front = append(front, words[i])
		}
	}
	return append(append(front, "--"), back...)
}

// takesValue reports whether the word after flag w is its value.
func takesValue(flags []cli.Flag, w string) bool {
	name := strings.TrimLeft(w, "-")
	if strings.Contains(name, "=") {
		return false
	}
	at := slices.IndexFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
	if at < 0 {
		return false
	}
	_, isBool := flags[at].(*cli.BoolFlag)
	return !isBool
}

// splitDash splits words at the first --, into those of the command itself and those that it passes on.
func splitDash(words []string) (own, rest []string, dashed bool) {
	if at := slices.Index(words, "--"); at >= 0 {
		return words[:at], words[at+1:], true
	}
	return words, nil, false
}
