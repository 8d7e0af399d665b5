// Package command holds what the programs of these comparisons have in common: how they begin and end, their directory for temporary files,
// and their options.
package command
