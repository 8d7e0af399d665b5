// Package testkit holds what the tests of several packages share: ranks that run concurrently, waits with a time limit, the built program,
// a log that can be read while it is written, processes that are killed while they save, a lease on a file, a cgroup with little memory,
// and a check whether other users can enter the directory of a test.
package testkit
