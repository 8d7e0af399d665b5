// Package command is what the programs of these comparisons have alike: how they begin and end, their folder for temporary files, and how
// they are told what to do.
package command
