// Package exit defines the exit codes that users' scripts rely on (docs/cli/exit-codes.md), and an error that carries an exit code to the
// end of the command.
package exit
