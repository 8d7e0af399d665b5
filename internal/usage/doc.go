// Package usage holds the error for a use of ddpbatch that is not valid: a command line, a variable, or a job that contradicts where it
// runs. A command exits with code 2 for it.
package usage
