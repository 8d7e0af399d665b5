package shm

import (
	"errors"
	"fmt"
)

var (
	// ErrElsewhere says that a segment cannot be reached: its process is on another machine, in
	// another namespace, another user's, or gone. Other ways to it may work.
	ErrElsewhere = errors.New("shared memory is not reachable from here")

	// ErrCorrupt says that a peer left values in shared memory that no correct one leaves.
	ErrCorrupt = errors.New("shared memory is corrupt")
)

// StampError says that two ranks were in different calls at the same time.
type StampError struct {
	Rank  int   // the other rank
	Stamp Stamp // what it gave
}

func (e *StampError) Error() string { return fmt.Sprintf("rank %d is in another call", e.Rank) }
