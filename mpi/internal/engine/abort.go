package engine

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// AbortError is the failure of another rank, as that rank told it.
type AbortError struct {
	By     int    // the rank that found the failure
	Rank   int    // the rank that it was about
	Reason error  // ErrMismatch, ErrTimeout, ErrLost, ErrLeft, ErrProtocol or ErrAborted
	Text   string // in the words of By
}

func (e *AbortError) Error() string { return fmt.Sprintf("rank %d gave up: %s", e.By, e.Text) }

// Unwrap returns Reason.
func (e *AbortError) Unwrap() error { return e.Reason }

// reasons are numbered on the wire by their place here.
var reasons = [...]error{ErrAborted, ErrMismatch, ErrTimeout, ErrLost, ErrLeft, ErrProtocol, ErrTruncated}

// newAbort is what rank self tells the others when it fails with err, in the
// words of text. What another rank found is passed on as it is, so that all ranks
// name the same one.
func newAbort(self int, err error, text string) *AbortError {
	if told := (*AbortError)(nil); errors.As(err, &told) {
		return told
	}
	a := &AbortError{By: self, Rank: self, Reason: ErrAborted, Text: text}
	for _, reason := range reasons {
		if errors.Is(err, reason) {
			a.Reason = reason
		}
	}
	var at *PeerError
	var diff *MismatchError
	switch {
	case a.Reason == ErrAborted: // not the fault of the rank that was waited for
	case errors.As(err, &at):
		a.Rank = at.Rank
	case errors.As(err, &diff):
		a.Rank = diff.There
	}
	return a
}

// encode gives the payload: By and Rank in 4 bytes each, the reason in 1, and the text, cut where it is
// too long.
func (a *AbortError) encode() []byte {
	payload := make([]byte, 0, maxControl)
	payload = binary.LittleEndian.AppendUint32(payload, uint32(a.By))
	payload = binary.LittleEndian.AppendUint32(payload, uint32(a.Rank))
	code := byte(0)
	for i, reason := range reasons {
		if a.Reason == reason {
			code = byte(i)
		}
	}
	payload = append(payload, code)
	return append(payload, a.Text[:min(len(a.Text), cap(payload)-len(payload))]...)
}

// decodeAbort reads the payload of an abort frame in a group of size ranks.
func decodeAbort(payload []byte, size int) (*AbortError, error) {
	if len(payload) < 9 {
		return nil, fmt.Errorf("%w: an abort of %d bytes", ErrProtocol, len(payload))
	}
	by, rank := binary.LittleEndian.Uint32(payload), binary.LittleEndian.Uint32(payload[4:])
	code := int(payload[8])
	if int64(by) >= int64(size) || int64(rank) >= int64(size) || code >= len(reasons) {
		return nil, fmt.Errorf("%w: an abort by rank %d about rank %d with reason %d", ErrProtocol, by, rank, code)
	}
	return &AbortError{By: int(by), Rank: int(rank), Reason: reasons[code], Text: printable(payload[9:])}, nil
}

// printable keeps a peer's words from steering the terminal they end up on.
func printable(text []byte) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, string(text))
}
