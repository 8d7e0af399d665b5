// Package tick reads the processor's time counter. That costs a third of reading the system's clock, which matters if an operation
// takes less than a microsecond.
package tick
