//go:build !linux

package vfs

import (
	"errors"
	"os"
)

func fallocate(*os.File, int64) error { return errors.ErrUnsupported }

func startWriteback(*os.File, int64, int64) {}

// Space is not known here.
func (OS) Space(name string) (Space, error) {
	return Space{}, pathError("statfs", name, errors.ErrUnsupported)
}
