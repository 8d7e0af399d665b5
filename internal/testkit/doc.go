// Package testkit holds what the tests of several rooms share: ranks that run side by side, waiting
// with a bound, and a log that can be read while it is written.
package testkit
