package main

import "strings"

// helpTemplate is a command's help: an example first, then what it is and takes. The parts are the library's.
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

// appHelpTemplate is the program's own.
const appHelpTemplate = `Example:

   {{wrap .Description 3}}

{{template "helpNameTemplate" .}}

Commands:
{{template "visibleCommandCategoryTemplate" .}}

"ddpbatch COMMAND -h" begins with an example, too. Exit codes and JSON fields: docs/cli.md.
`

// example joins the command lines that a help text begins with.
func example(lines ...string) string { return strings.Join(lines, "\n") }
