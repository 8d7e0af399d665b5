// Package processes runs the processes of one measurement, and leaves none of them behind.
package processes
