// Package blame finds out which rank of a run failed first, in truth, and tells a person.
//
// When one rank of a job dies, all others die of it within seconds: their connections to it end, their watchdogs fire, their
// agents tell them to stop. The rank that is heard of first is often one of those, since a rank that raises an
// exception closes its connections long before its interpreter has ended. [Choose] looks at how each rank ended and at
// its last words; [Report] tells the result on one screen.
//
// [Find] looks up what that rank said in a table of the messages that are known: where the cause lies, whether a restart can help, and
// what a person can do.
//
// The package does nothing but read the files that it is given the names of. All text in a [Death] comes from the workers:
// it is bounded, and what [Report] shows of it does nothing to a terminal.
package blame
