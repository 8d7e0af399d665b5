// Package report prints what a comparison found, for people: the machine, and tables of Markdown. Figures that have no peer are measured
// here, too.
package report
