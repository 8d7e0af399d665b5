package store

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
)

type replyCode byte

const (
	replyDone      replyCode = iota + 1 // the result, in the operation's format
	replyCancelled                      // number of absent keys (4 bytes), the first few of them
	replyClosed                         // this and the following: the error's text
	replyTooLarge
	replyFull
	replyNotNumber
	replyBusy
	replyOther
)

// replyCodes maps errors to their codes in replies.
var replyCodes = []struct {
	code replyCode
	err  error
}{
	{replyClosed, ErrClosed},
	{replyTooLarge, ErrTooLarge},
	{replyFull, ErrFull},
	{replyNotNumber, ErrNotNumber},
	{replyBusy, ErrBusy},
}

// reply is a server's message: the id of the request (8 bytes), a code (1 byte), and the rest.
type reply struct {
	id   uint64
	code replyCode
	rest []byte
}

// result is the rest of a reply with replyDone:
//
//	Set, Wait, Append, MultiSet    nothing
//	Get                            the value
//	Add, NumKeys                   the sum, the number (8 bytes)
//	CompareSet                     1 and the value, or 0 if there is none
//	Delete, Check                  1 or 0
//	List, MultiGet                 number of keys or values (4 bytes), each with its length (4 bytes) before it
type result []byte

func numberResult(n int64) result { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func boolResult(b bool) result {
	if b {
		return result{1}
	}
	return result{0}
}

func optionalResult(value []byte) result {
	if value == nil {
		return result{0}
	}
	return append(result{1}, value...)
}

func listResult[T string | []byte](list []T) result {
	size := 4
	for _, e := range list {
		size += 4 + len(e)
	}
	r := binary.BigEndian.AppendUint32(make(result, 0, size), uint32(len(list)))
	for _, e := range list {
		r = appendBytes(r, e)
	}
	return r
}

// list returns parts of r.
func (r result) list() ([][]byte, error) {
	f := fields{rest: r}
	n, err := f.count(4)
	if err != nil {
		return nil, err
	}
	list := make([][]byte, n)
	for i := range list {
		list[i] = f.bytes()
	}
	return list, f.end()
}

func (r result) optional() ([]byte, error) {
	f := fields{rest: r}
	switch present := f.byte(); {
	case present > 1:
		return nil, fmt.Errorf("%w: byte %d for a truth value", errMalformed, present)
	case present == 1:
		return f.rest, nil
	}
	return nil, f.end()
}

func (r result) number() (int64, error) {
	f := fields{rest: r}
	n := int64(f.uint64())
	return n, f.end()
}

func (r result) bool() (bool, error) {
	f := fields{rest: r}
	b := f.byte()
	if b > 1 {
		return false, fmt.Errorf("%w: byte %d for a truth value", errMalformed, b)
	}
	return b == 1, f.end()
}

// writeTo sends the reply. It does not copy a large rest.
func (r *reply) writeTo(w *bufio.Writer) error {
	head := binary.BigEndian.AppendUint32(w.AvailableBuffer(), uint32(minFrame+len(r.rest)))
	head = append(binary.BigEndian.AppendUint64(head, r.id), byte(r.code))
	w.Write(head) // bufio keeps the first error for the next call
	_, err := w.Write(r.rest)
	return err
}

// errorReply returns the reply for an error of the store.
func errorReply(id uint64, err error) reply {
	if wait, ok := errors.AsType[*WaitError](err); ok {
		rest := binary.BigEndian.AppendUint32(nil, uint32(wait.Absent))
		for _, key := range wait.Missing {
			rest = appendBytes(rest, key)
		}
		return reply{id, replyCancelled, rest}
	}
	r := reply{id, replyOther, []byte(err.Error())}
	for _, s := range replyCodes {
		if errors.Is(err, s.err) {
			r.code = s.code
		}
	}
	return r
}

// parseReply parses a frame. The reply's rest is part of the frame.
func parseReply(frame []byte) (reply, error) {
	f := fields{rest: frame}
	r := reply{id: f.uint64(), code: replyCode(f.byte()), rest: f.rest}
	if r.code < replyDone || r.code > replyOther {
		return r, fmt.Errorf("%w: no reply has code %d", errMalformed, r.code)
	}
	return r, nil
}

// outcome is the result for the caller of req. If the server reports that the request was canceled, the caller's context has ended.
func (r *reply) outcome(ctx context.Context, req *request) (result, error) {
	if r.code == replyDone {
		return result(r.rest), nil
	}
	if r.code == replyCancelled {
		err := ctx.Err()
		if err == nil { // the server ended the wait: it is about to close the connection
			err = ErrClosed
		}
		return nil, r.waitError(req.awaited(), err)
	}
	for _, s := range replyCodes {
		if s.code == r.code {
			return nil, &remoteError{string(r.rest), s.err}
		}
	}
	return nil, errors.New(string(r.rest))
}

func (r *reply) waitError(keys []string, err error) error {
	f := fields{rest: r.rest}
	e := &WaitError{Keys: keys, Absent: int(f.uint32()), Err: err}
	for len(f.rest) > 0 && !f.short && len(e.Missing) < namedKeys {
		e.Missing = append(e.Missing, string(f.bytes()))
	}
	return e
}

// remoteError is an error of the store at the other end: its text, and the sentinel that it matches.
type remoteError struct {
	text string
	kind error
}

func (e *remoteError) Error() string { return e.text }
func (e *remoteError) Unwrap() error { return e.kind }
