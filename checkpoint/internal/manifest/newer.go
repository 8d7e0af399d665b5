package manifest

import "fmt"

// Newer is the error for a file that is whole, but of a later version of the format. It says
// nothing against the file.
type Newer struct{ Version int64 }

func (e *Newer) Error() string {
	return fmt.Sprintf(
		"it has version %d, this program reads up to %d; use the ddpbatch that wrote it, or a later one", e.Version, Version)
}
