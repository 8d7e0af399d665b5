// Package templates holds the text that ddpbatch writes for its users: the batch script for
// sbatch, job files to start from, and scripts by which shells complete command lines.
//
// All of it is embedded in the binary, so only one file needs to be copied. A starter is a job.toml
// that is accepted unchanged and without a warning; its comments explain the keys. A line that begins with "#"
// without a space after it is a setting to switch on. Scripts that a starter runs are in files/, and are written beside it.
//
// # Example
//
//	for _, s := range templates.Starters() {
//		fmt.Printf("%-10s %s\n", s.Name, s.Summary)
//	}
package templates
