package store

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"
)

// appendTorch2 is a query as a client of the later form sends it, from the tables in the reference of the wire.
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

// FuzzTorchQuery holds every query that is read against what was read, and the allowance against what is held.
func FuzzTorchQuery(f *testing.F) {
	f.Add([]byte("\x01"+str("/k")+str("v1")), true)
	f.Add([]byte("\x02"+str("/k")+str("a")+str("b")), true)
	f.Add([]byte("\x0b"+le8(2)+str("/a")+str("1")+str("/b")+str("")), true)
	f.Add([]byte("\x0a"+le8(1)+str("/a")+"\x0d\x01\x02\x03\x04"), true)
	f.Add([]byte("\x0e"+str("/q")+str("v")+"\x0f"+str("/q")), true)
	f.Add([]byte("\x08"+str("/k")), false)
	f.Add([]byte("\x05"+le8(1<<40)), false)
	f.Fuzz(func(t *testing.T, words []byte, later bool) {
		r := torchReader{r: bufio.NewReader(bytes.NewReader(words)), allowance: &allowance{most: MaxTorchBytes}}
		if later {
			r.form = torch2
		}
		q, err := r.next()
		if used := r.allowance.used.Load(); used != int64(q.size) || q.size > maxTorchQuery {
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

// FuzzTorchSession plays arbitrary bytes to a session: it must end, leave nobody waiting, and keep the books.
func FuzzTorchSession(f *testing.F) {
	f.Add([]byte("\x01"+str("/k")+str("v1")+"\x06"+le8(2)+str("/k")+str("/l")+"\x0c\x07"), true)
	f.Add([]byte("\x0e"+str("/q")+str("v")+"\x06"+le8(1)+str("/q")+"\x0f"+str("/q")+"\x06"+le8(1)+str("/q")), true)
	f.Add([]byte("\x05"+le8(1)+str("/k")+"\x00"+str("/k")+str("v")+"\x02"+str("/k")), false)
	f.Fuzz(func(t *testing.T, words []byte, later bool) {
		m, conn, all := newMemory(), &deafConn{scriptConn{in: bytes.NewReader(words)}}, &allowance{most: MaxTorchBytes}
		line := &replyLine{most: MaxTorchReplies}
		s := &torchSession{store: m, conn: conn, replies: line, out: bufio.NewWriter(conn), in: torchReader{r: bufio.NewReader(conn), allowance: all}}
		if later {
			s.in.form = torch2
		}
		s.serve(t.Context())
		if n := m.awaited(); n != 0 {
			t.Errorf("%d keys are still waited for", n)
		}
		if n := all.used.Load(); n != 0 {
			t.Errorf("%d bytes are still held", n)
		}
		if line.used != 0 || len(line.waiting) != 0 {
			t.Errorf("%d bytes are still held for replies, and %d wait", line.used, len(line.waiting))
		}
	})
}

// deafConn has no deadlines.
type deafConn struct{ scriptConn }

func (deafConn) SetReadDeadline(time.Time) error  { return nil }
func (deafConn) SetWriteDeadline(time.Time) error { return nil }
