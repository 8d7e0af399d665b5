// Package jobenv reads what a process's environment says of the job around it.
package jobenv
