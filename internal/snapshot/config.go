package snapshot

import (
	"errors"
	"fmt"
)

// Kinds of snapshots.
const (
	None = "none"
	Git  = "git"  // the files that git tracks
	Copy = "copy" // all files
)

// Config is the table [code] of job.toml.
type Config struct {
	Snapshot string   `json:"snapshot"`          // None, Git or Copy
	Include  []string `json:"include,omitempty"` // patterns of untracked files, for Git
	Exclude  []string `json:"exclude,omitempty"` // patterns of any files
	MaxMB    int      `json:"max_mb"`            // 1 MB is 1 MiB, as for sizes in job.toml
	MaxFiles int      `json:"max_files"`         // directories that only Copy has count too
}

// DefaultConfig returns a Config without a copy.
func DefaultConfig() Config { return Config{Snapshot: None, MaxMB: 100, MaxFiles: 20_000} }

// On reports whether a copy is requested.
func (c Config) On() bool { return c.Snapshot == Git || c.Snapshot == Copy }

// Validate reports invalid values. Its error joins one error for each, which begins with the key.
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
		errs = append(errs, fmt.Errorf(
			`code.include names untracked files for code.snapshot = %q; %q copies all files: remove code.include`, Git,
			Copy))
	}
	return errors.Join(errs...)
}
