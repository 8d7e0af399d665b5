// Package report prints the results of a comparison: the machine, and tables in Markdown.
package report
