package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
)

// smallReply is what a reply may cost, in bytes, without waiting for its turn.
const smallReply = 4 << 10

// replyInTurn is reply when there is room for it, of which size bytes are then the caller's to give back. The parts are
// the store's own, not copies: what they cost is the values that are replaced while a client is slow to take
// them. A reply that waits for its turn has none yet.
func (s *torchSession) replyInTurn(ctx context.Context, q *torchQuery) (parts [][]byte, size int, err error) {
	most := MaxValue + 4*fieldCost
	switch q.op {
	case torchMultiGet:
		most = MaxTogether + 3*fieldCost*len(q.keys)
		fallthrough
	case torchGet:
		// When its turn has come, it asks again.
		if parts, err := s.reply(q, anyLength); err != nil || costOf(parts) <= smallReply {
			return parts, 0, err
		}
	case torchCompareSet, torchQueuePop: // cannot be asked twice
		if parts, err := s.reply(q, smallReply); !errors.Is(err, errTooLong) {
			return parts, 0, err
		}
	default:
		parts, err = s.reply(q, anyLength)
		return parts, 0, err
	}
	if err := s.replies.take(ctx, most); err != nil {
		return nil, 0, err
	}
	parts, err = s.reply(q, anyLength)
	size = costOf(parts)
	s.replies.give(most - size)
	return parts, size, err
}

func costOf(parts [][]byte) int {
	size := 0
	for _, part := range parts {
		size += fieldCost + len(part)
	}
	return size
}

// reply returns the parts of the reply. They are not copied from the store. What changes the store and would have a value of more than
// longest bytes for its reply is not done: the error is errTooLong.
func (s *torchSession) reply(q *torchQuery, longest int) ([][]byte, error) {
	switch q.op {
	case torchSet:
		return nil, s.store.set(q.key, q.value)
	case torchAppend:
		return nil, s.store.extend(q.key, q.value)
	case torchMultiSet:
		return nil, s.store.multiSet(q.items)
	case torchCompareSet:
		value, err := s.store.compareSet(q.key, q.expected, q.value, longest)
		if value == nil {
			value = q.expected // so PyTorch says that there is none
		}
		return torchValues(value), err
	case torchGet:
		value, err := s.store.peek(q.key)
		if value == nil && err == nil && s.in.form == torch1 {
			err = fmt.Errorf("get %s: it is absent, and PyTorch 1.13's wire has no reply for that", quote(q.key))
		}
		return torchValues(value), err
	case torchMultiGet:
		values, _, err := s.store.peekAll(q.keys)
		return torchValues(values...), err
	case torchAdd:
		sum, err := s.store.add(q.key, q.delta)
		return torchNumber(sum), err
	case torchDelete:
		was, err := s.store.remove(q.key)
		return torchNumber(int64(boolResult(was)[0])), err
	case torchNumKeys:
		n, err := s.store.count(s.in.prefix)
		return torchNumber(int64(n)), err
	case torchCheck:
		present, err := s.store.present(q.keys, s.store.hasOrQueues)
		return [][]byte{boolResult(!present)}, err
	case torchWait: // all are there
		return [][]byte{{torchStopWaiting}}, nil
	case torchQueuePush:
		return nil, s.store.push(q.key, q.value)
	case torchQueuePop:
		n, value, err := s.store.pop(q.key, longest)
		if n == 0 {
			return torchNumber(0), err
		}
		return append(torchNumber(int64(n)), torchValues(value)...), err
	case torchQueueLen:
		n, err := s.store.queueLen(q.key)
		return torchNumber(int64(n)), err
	case torchCancelWait:
		return [][]byte{{torchWaitCancelled}}, nil
	case torchPing:
		return [][]byte{binary.LittleEndian.AppendUint32(nil, q.nonce)}, nil
	}
	return nil, fmt.Errorf("%w: query %d", errMalformed, q.op)
}

// The replies to torchWait and torchCancelWait.
const (
	torchStopWaiting   = 0
	torchWaitCancelled = 1
)

func torchNumber(n int64) [][]byte {
	return [][]byte{binary.LittleEndian.AppendUint64(nil, uint64(n))}
}

// torchValues are values with their lengths; nil is an empty one.
func torchValues(values ...[]byte) [][]byte {
	parts := make([][]byte, 0, 2*len(values))
	for _, value := range values {
		parts = append(parts, binary.LittleEndian.AppendUint64(nil, uint64(len(value))), value)
	}
	return parts
}
