// Package runindex is a user's index of runs: a directory with a symbolic link to each run directory, wherever that is, so that status
// --all finds the runs of every project. A link is created in one step on any file system. So no lock is needed, and commands on several
// machines can share the index in a home directory.
package runindex
