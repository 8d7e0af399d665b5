package store

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// appendTorch2 returns a query as a client of the later form sends it, from the tables in the reference of the wire.
func appendTorch2(q *torchQuery) string {
	out := string([]byte{byte(q.op)})
	switch q.op {
	case torchSet, torchAppend, torchQueuePush:
		out += str(q.key) + str(string(q.value))
	case torchCompareSet:
		out += str(q.key) + str(string(q.expected)) + str(string(q.value))
	case torchGet, torchDelete, torchQueuePop, torchQueueLen:
		out += str(q.key)
	case torchAdd:
		out += str(q.key) + le8(uint64(q.delta))
	case torchCheck, torchWait, torchMultiGet:
		out += le8(uint64(len(q.keys)))
		for _, key := range q.keys {
			out += str(key)
		}
	case torchMultiSet:
		out += le8(uint64(len(q.items)))
		for _, item := range q.items {
			out += str(item.Key) + str(string(item.Value))
		}
	case torchPing:
		out += string(binary.LittleEndian.AppendUint32(nil, q.nonce))
	}
	return out
}

// FuzzTorchQuery compares every query with the bytes that were read, and the allowance with the bytes that the query holds.
func FuzzTorchQuery(f *testing.F) {
	f.Add([]byte("\x01"+str("/k")+str("v1")), true)
	f.Add([]byte("\x02"+str("/k")+str("a")+str("b")), true)
	f.Add([]byte("\x0b"+le8(2)+str("/a")+str("1")+str("/b")+str("")), true)
	f.Add([]byte("\x0a"+le8(1)+str("/a")+"\x0d\x01\x02\x03\x04"), true)
	f.Add([]byte("\x0e"+str("/q")+str("v")+"\x0f"+str("/q")), true)
	f.Add([]byte("\x08"+str("/k")), false)
	f.Add([]byte("\x05"+le8(1<<40)), false)
	f.Fuzz(func(t *testing.T, words []byte, later bool) {
		r := torchReader{r: bufio.NewReader(bytes.NewReader(words)), allowance: &budget{most: MaxTorchBytes}}
		if later {
			r.form = torch2
		}
		q, err := r.next()
		if used := r.allowance.used; used != q.size || q.size > maxTorchQuery {
			t.Fatalf("%d bytes are held for a query of %d", used, q.size)
		}
		if err != nil {
			if !errors.Is(err, errMalformed) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("error %v", err)
			}
			return
		}
		rest, _ := io.ReadAll(r.r)
		if read := string(words[1 : len(words)-len(rest)]); read != appendTorch2(&q)[1:] {
			t.Errorf("%q was read as %+v", read, q)
		}
	})
}

// TestQueriesShareABudget has clients send more than the budget together.
func TestQueriesShareABudget(t *testing.T) {
	a := &budget{most: 100}
	for _, c := range []struct {
		size int
		ok   bool
	}{{60, true}, {41, false}, {40, true}, {1, false}, {0, true}} {
		if ok := a.tryTake(c.size); ok != c.ok {
			t.Errorf("take %d of 100: %v", c.size, ok)
		}
	}
	a.give(100)
	if !a.tryTake(100) {
		t.Error("what was given back is lost")
	}
}
