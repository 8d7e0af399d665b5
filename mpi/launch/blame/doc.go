// Package blame finds out which rank of a run really failed first, and reports that to a person.
//
// When one rank of a job fails, all others fail within seconds: their connections to it end, their watchdogs fire, or their agents
// stop them. The rank whose end is noticed first is often one of those, because a rank that raises an exception closes its
// connections long before its interpreter has ended. [Choose] compares how each rank ended and what it printed last. [Report] shows
// the result on one screen.
//
// [Find] looks up the rank's last lines in a table of known messages: where the cause lies, whether a restart can help, and what a
// person can do.
//
// The package has no effects except that it reads the files whose names it gets. All text in a [Death] comes from the workers: it
// is bounded, and [Report] removes what would control a terminal.
package blame
