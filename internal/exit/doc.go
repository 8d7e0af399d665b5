// Package exit has the exit codes that users script against (docs/cli.md), and the error that carries one from where it is known to the
// end of the command.
package exit
