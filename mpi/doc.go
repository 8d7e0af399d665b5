// Package mpi is described when it is built.
package mpi
