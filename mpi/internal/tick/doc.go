// Package tick reads the processor's counter of time: a third of what the system's
// clock costs, which counts where an operation takes less than a microsecond.
package tick
