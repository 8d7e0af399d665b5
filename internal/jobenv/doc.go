// Package jobenv reads what a process's environment says about the job around it.
package jobenv
