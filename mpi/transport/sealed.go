package transport

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"ddpbatch/internal/auth"
)

const (
	recordHead = 2  // bytes of a record's length
	recordTag  = 16 // bytes that AES-GCM adds
)

// The sizes of the longest records of a link, with head and tag, in bytes.
const (
	controlRecord = 4 << 10
	dataRecord    = 32 << 10
)

// errForged ends a connection with a record that differs from what the other rank has sent, or that is out of order.
var errForged = errors.New("data was changed on the way: it is not what the other rank has sent")

// sealing encrypts one connection of two ranks. It uses AES-256-GCM (NIST SP 800-38D) over records, each a length (2 bytes, big-endian) and
// then that many bytes. The key of each direction is derived from the key of the accepting rank and from both hellos, which the handshake
// has proved. The nonce of a record is its number.
type sealing struct{ out, in direction }

type direction struct {
	aead  cipher.AEAD
	nonce [12]byte
}

// newSealing returns the sealing of the dialing rank, or of the accepting one. No two connections have the same hellos: these contain the
// nonce of the dialing process, the number of its try, and the number of the connection in that try.
func newSealing(key auth.Secret, dialHello, acceptHello []byte, dialled bool) *sealing {
	there := newDirection(key.Derive("to the accepting rank", string(dialHello), string(acceptHello)))
	back := newDirection(key.Derive("to the dialling rank", string(dialHello), string(acceptHello)))
	if dialled {
		return &sealing{out: there, in: back}
	}
	return &sealing{out: back, in: there}
}

func newDirection(key auth.Secret) direction {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // only if the key's size is wrong
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // only if AES's block size is wrong
	}
	return direction{aead: aead}
}

// next increments the nonce. No run sends 2^64 records.
func (d *direction) next() {
	count := d.nonce[4:]
	binary.BigEndian.PutUint64(count, binary.BigEndian.Uint64(count)+1)
}

// seal makes a record of buf[recordHead:size], in place. buf must have room for the tag.
func (d *direction) seal(buf []byte, size int) []byte {
	sealed := d.aead.Seal(buf[recordHead:recordHead], d.nonce[:], buf[recordHead:size], nil)
	d.next()
	binary.BigEndian.PutUint16(buf, uint16(len(sealed)))
	return buf[:recordHead+len(sealed)]
}

// open decrypts a record, in place, and returns its content.
func (d *direction) open(sealed []byte) ([]byte, error) {
	opened, err := d.aead.Open(sealed[:0], d.nonce[:], sealed, nil)
	if err != nil {
		return nil, errForged
	}
	d.next()
	return opened, nil
}

// sendByte sends one byte of the handshake.
func (s *sealing) sendByte(conn net.Conn, word byte) error {
	buf := [recordHead + 1 + recordTag]byte{recordHead: word}
	_, err := conn.Write(s.out.seal(buf[:], recordHead+1))
	return err
}

// receiveByte waits for one byte of the handshake.
func (s *sealing) receiveByte(conn net.Conn) (byte, error) {
	var buf [recordHead + 1 + recordTag]byte
	if _, err := io.ReadFull(conn, buf[:]); err != nil {
		return 0, err
	}
	if int(binary.BigEndian.Uint16(buf[:])) != 1+recordTag {
		return 0, errForged
	}
	opened, err := s.in.open(buf[recordHead:])
	if err != nil {
		return 0, err
	}
	return opened[0], nil
}

// sealedConn is a connection of two ranks that have proved themselves.
type sealedConn struct {
	*net.TCPConn
	keys *sealing
}

// sealedLink is a Link that encrypts its bytes over one TCP connection.
type sealedLink struct {
	tcp  *tcpLink
	keys *sealing

	record  []byte // the record that is being written
	unsent  []byte // the part of record that is not sent yet
	held    bool   // its last byte has not been counted as taken
	raw     []byte // data that was read, from the start of a record
	r, w    int    // raw[r:w] is not decrypted yet
	opened  []byte // the part of raw that is decrypted, but not read yet
	failure error  // the error of every later Read
}

// newSealedLink returns the link of a connection whose records have at most longest bytes, at both ends.
func newSealedLink(tcp *tcpLink, keys *sealing, longest int) *sealedLink {
	return &sealedLink{tcp: tcp, keys: keys, record: make([]byte, longest), raw: make([]byte, longest)}
}

// Write counts the last byte of a record as taken only when the whole record is sent, so that the caller calls it again until then.
func (l *sealedLink) Write(head, body []byte) (int, error) {
	total := 0
	for {
		if err := l.flush(); err != nil || len(l.unsent) > 0 || len(head)+len(body) == 0 {
			return total, err
		}
		if l.held {
			l.held = false
			total++
			if len(head) > 0 {
				head = head[1:]
			} else {
				body = body[1:]
			}
			continue
		}
		room := l.record[recordHead : len(l.record)-recordTag]
		h := copy(room, head)
		b := copy(room[h:], body)
		l.unsent, l.held = l.keys.out.seal(l.record, recordHead+h+b), true
		total += h + b - 1
		if b > 0 {
			head, body = nil, body[b-1:]
		} else {
			head = head[h-1:]
		}
	}
}

// flush sends as much as it can of the record that is being written.
func (l *sealedLink) flush() error {
	for len(l.unsent) > 0 {
		n, err := l.tcp.Write(l.unsent, nil)
		l.unsent = l.unsent[n:]
		if n == 0 || err != nil {
			return err
		}
	}
	return nil
}

func (l *sealedLink) Read(buf []byte) (int, error) {
	total := 0
	for total < len(buf) {
		if len(l.opened) == 0 && !l.openNext() {
			break
		}
		n := copy(buf[total:], l.opened)
		l.opened = l.opened[n:]
		total += n
	}
	if total > 0 {
		return total, nil
	}
	return 0, l.failure
}

// openNext decrypts the next record, and reports whether it has arrived.
func (l *sealedLink) openNext() bool {
	for l.failure == nil {
		if have := l.raw[l.r:l.w]; len(have) >= recordHead {
			size := int(binary.BigEndian.Uint16(have))
			if size <= recordTag || size > len(l.raw)-recordHead {
				l.failure = fmt.Errorf("%w: a record has %d bytes", errForged, size)
				return false
			}
			if len(have) >= recordHead+size {
				l.r += recordHead + size
				l.opened, l.failure = l.keys.in.open(have[recordHead : recordHead+size])
				return l.failure == nil
			}
		}
		l.w = copy(l.raw, l.raw[l.r:l.w]) // everything decrypted has been read
		l.r = 0
		n, err := l.tcp.Read(l.raw[l.w:])
		l.w += n
		if n == 0 {
			if l.failure = err; l.w > 0 && errors.Is(err, io.EOF) {
				l.failure = io.ErrUnexpectedEOF
			}
			return false
		}
	}
	return false
}
