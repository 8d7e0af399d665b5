// Package processes runs the processes of one measurement, leaves none of them behind, and says what memory and processor time one uses.
package processes
