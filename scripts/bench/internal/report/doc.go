// Package report prints what a comparison found, for people: the machine, and tables of Markdown.
package report
