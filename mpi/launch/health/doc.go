// Package health checks a node, in a few milliseconds, for problems that keep workers from running there, such as GPUs whose driver
// is not loaded or limits that are too low, and for problems that may do so, such as a full /dev/shm or no usable folder for
// temporary files. The checks run before workers are started. They start no processes, and they do not call a problem fatal if some
// program can run despite it.
package health
