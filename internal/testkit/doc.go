// Package testkit holds what the tests of several packages share: ranks that run side by side, waiting
// with a bound, the built program, a log that can be read while it is written, processes that are killed while they save,
// a lease on a file, a cgroup with little memory, and whether other users can enter the folder of a test.
package testkit
