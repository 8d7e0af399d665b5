//go:build !unix

package vfs

import (
	"errors"
	"fmt"
)

// PrivateDir is refused: there are no owners and modes to go by.
func (OS) PrivateDir(name string) error {
	return fmt.Errorf("make %s private: %w", name, errors.ErrUnsupported)
}
