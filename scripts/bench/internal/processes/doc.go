// Package processes runs the processes of one measurement, leaves none of them behind, and measures their memory and processor time.
package processes
