// Package pause waits for a while, or less where nobody waits for what comes after.
package pause
