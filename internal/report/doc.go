// Package report shows what a run has left behind on one page: curves, attempts, the ranks' step times, checkpoints, settings.
//
// # Guarantees
//
//   - The page is one HTML file that needs no network and no script. Its own policy (Content-Security-Policy) forbids both, whatever
//     names and messages the run's files hold: all of them are escaped.
//   - Memory and the size of the page are bounded, whatever the run's files hold: curves are thinned as they are read, and keep the
//     smallest and the largest of the values that each point stands for.
//   - Values of settings that may be secret are blanked by package redact.
//
// # Limits
//
// A metrics file of more than 384 MiB is not read as a whole: evenly spaced blocks of it are read, and the page says so.
package report
