// Package pause waits for a time, and returns early if the context ends.
package pause
