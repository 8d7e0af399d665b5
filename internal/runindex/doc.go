// Package runindex is a user's index of runs: a folder with a symbolic link to each run directory, wherever that is, so that status --all
// finds runs of every project. A link is made in one step on any file system, so that no lock is needed, and commands on several machines
// share the index in a home folder.
package runindex
