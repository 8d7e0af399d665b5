//go:build !linux

package testkit

import "testing"

// Lease needs Linux.
func Lease(t testing.TB, _ string) {
	t.Helper()
	t.Skip("no leases here")
}

// LeaseUntil needs Linux.
func LeaseUntil(t testing.TB, path string, _ func() error) {
	t.Helper()
	Lease(t, path)
}
