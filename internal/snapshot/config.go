package snapshot

import (
	"errors"
	"fmt"
)

// Kinds of snapshots.
const (
	None = "none"
	Git  = "git"  // what git tracks
	Copy = "copy" // all files
)

// Config is the table [code] of job.toml.
type Config struct {
	Snapshot string   `json:"snapshot"`          // None, Git or Copy
	Include  []string `json:"include,omitempty"` // patterns of untracked files, for Git
	Exclude  []string `json:"exclude,omitempty"` // patterns of files of any kind
	MaxMB    int      `json:"max_mb"`            // 1 MB is 1 MiB, as in sizes of job.toml
	MaxFiles int      `json:"max_files"`         // folders of their own, which only Copy has, count, too
}

// DefaultConfig makes no copy.
func DefaultConfig() Config { return Config{Snapshot: None, MaxMB: 100, MaxFiles: 20_000} }

// On reports whether a copy is asked for.
func (c Config) On() bool { return c.Snapshot == Git || c.Snapshot == Copy }

// Validate says what is wrong. Its error joins one for each fault, which begins with the key to blame.
func (c Config) Validate() error {
	var errs []error
	for _, list := range []struct {
		key      string
		patterns []string
	}{{"include", c.Include}, {"exclude", c.Exclude}} {
		for i, text := range list.patterns {
			if _, err := parsePattern(text); err != nil {
				errs = append(errs, fmt.Errorf("code.%s: item %d: %w", list.key, i+1, err))
			}
		}
	}
	if len(c.Include) > 0 && c.Snapshot == Copy {
		errs = append(errs, fmt.Errorf(`code.include names untracked files for code.snapshot = %q; %q takes all files: leave it out`, Git,
			Copy))
	}
	return errors.Join(errs...)
}
