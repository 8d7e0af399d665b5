// Package report puts together what a run has left, and shows it as one page: curves, attempts, the ranks' step times, checkpoints,
// settings.
//
// # Guarantees
//
//   - The page is one HTML file that needs no network and no script. Its own policy (Content-Security-Policy) forbids both, whatever
//     names and messages the run's files hold: all of them are escaped.
//   - Memory and the size of the page are bounded, whatever the run's files hold:
//
// curves are thinned as they are read, and keep the least and
//
//	  the largest value of what each point stands for.
//	- Values of settings that may be secret are blanked, as package redact has it.
//
// # Limits
//
// A metrics file of more than 384 MiB is not read as a whole, but in blocks that lie evenly in it. The page says so.
package report
