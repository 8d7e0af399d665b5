package transport

import (
	"errors"
	"fmt"
	"io"
)

// ErrClosedThere is the io.EOF of a Network's link whose other end was closed by its rank, which was not killed.
var ErrClosedThere = fmt.Errorf("the other rank has closed its links: %w", io.EOF)

// ErrProtocol: a rank sent what no rank of this version sends.
var ErrProtocol = errors.New("protocol violation")
