// Package jobfile is described when it is built.
package jobfile
