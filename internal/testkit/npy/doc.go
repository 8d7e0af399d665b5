// Package npy writes arrays as numpy.save does, for tests of what reads them.
package npy
