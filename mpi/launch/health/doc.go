// Package health looks at a node, in a few milliseconds, for what keeps workers from running there: a /dev/shm that is full, no folder for
// temporary files, GPUs whose driver is not loaded, limits that are too low. It is asked before workers are started, so that it calls
// nothing a fault that some program could do without, and starts no process.
package health
