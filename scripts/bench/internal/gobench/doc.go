// Package gobench runs benchmarks of package testing, and reads what they print.
package gobench
