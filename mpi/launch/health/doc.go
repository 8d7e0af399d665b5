// Package health looks at a node, in a few milliseconds, for what keeps workers from running there: GPUs whose driver is not loaded, limits
// that are too low; and for what may: a /dev/shm that is full, no folder for temporary files. It is asked before workers are started, so
// that it calls nothing a fault that some program could do without, and starts no process.
package health
