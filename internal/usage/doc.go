// Package usage is the error of who uses ddpbatch in a way that it does not understand: a command line, a variable, or a job
// that contradicts where it runs. A command ends with exit code 2 for it.
package usage
