package tools

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

// MissingError is a peer that is not installed.
type MissingError struct{ What, Packages string } // Packages: Debian's

func (e *MissingError) Error() string {
	return fmt.Sprintf("%s is not here; install it (Debian): apt-get install %s", e.What, e.Packages)
}

// EachPeer calls add for each of the peers that --peers lists. Its error names everything that is missing at once.
func EachPeer(peers []string, add func(peer string) error) error {
	var here, missing, packages []string
	for _, peer := range peers {
		err := add(peer)
		var lack *MissingError
		switch {
		case errors.As(err, &lack):
			missing, packages = append(missing, lack.What), append(packages, lack.Packages)
		case err != nil:
			return err
		default:
			here = append(here, peer)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("these are not here: %s\n  install them (Debian): apt-get install %s\n  or leave them out: --peers %s",
		strings.Join(missing, ", "), strings.Join(packages, " "), cmp.Or(strings.Join(here, ","), "none"))
}
