package transport

import "errors"

// ErrProtocol: a rank sent what no rank of this version sends.
var ErrProtocol = errors.New("protocol violation")
