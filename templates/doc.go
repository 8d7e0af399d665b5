// Package templates holds the text that ddpbatch writes for its users: the batch script that
// sbatch is given, job files to start from, and scripts by which shells complete command lines.
//
// All of it is embedded in the binary, so that one file is all there is to copy. A starter is a job.toml
// that is accepted as it stands, without a warning; its comments teach. A line that begins with "#"
// and no space is a setting to switch on. Scripts that it runs stand in files/, and are written beside it.
//
// # Example
//
//	for _, s := range templates.Starters() {
//		fmt.Printf("%-10s %s\n", s.Name, s.Summary)
//	}
package templates
