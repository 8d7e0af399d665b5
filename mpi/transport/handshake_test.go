package transport

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"ddpbatch/mpi/internal/shm"
)

// The expected bytes were written by hand: eight big-endian numbers, the nonce, and the handle.
func TestHelloHasItsBytesInOrder(t *testing.T) {
	h := hello{
		rank: 1, size: 0x01020304, local: 1, pid: 5, pipe: 0xfffffffe, stream: 6, streams: 7, try: 8,
		nonce: nonce{0xaa, 15: 0xbb}, memory: [shm.HandleSize]byte{1, 2, 3},
	}
	want := "00000001" + "01020304" + "00000001" + "00000005" + "fffffffe" + "00000006" + "00000007" + "00000008" +
		"aa" + strings.Repeat("00", 14) + "bb" + "010203" + strings.Repeat("00", shm.HandleSize-3)
	if got := hex.EncodeToString(h.encode()); got != want {
		t.Errorf("encoded\n%s, want\n%s", got, want)
	}
	if got, err := decodeHello(h.encode()); err != nil || got != h {
		t.Errorf("decoded %+v, %v", got, err)
	}
}

func FuzzDecodeHello(f *testing.F) {
	f.Add(hello{rank: 1, size: 2}.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, buf []byte) {
		h, err := decodeHello(buf)
		if (err == nil) != (len(buf) == helloSize) || err != nil && !errors.Is(err, ErrProtocol) {
			t.Fatalf("%d bytes: %v", len(buf), err)
		}
		if err == nil && string(h.encode()) != string(buf) {
			t.Fatalf("% x becomes % x", buf, h.encode())
		}
	})
}

func TestAnswersSeparateRefusalFromRetry(t *testing.T) {
	for a := range answer(255) {
		err := a.err()
		switch a {
		case answerWelcome, answerSharing:
			if err != nil {
				t.Errorf("answer %d: %v", a, err)
			}
		case answerImpossible, answerDuplicate, answerUnshared:
			if !errors.Is(err, errRefused) {
				t.Errorf("answer %d: %v", a, err)
			}
		case answerStale:
			if errors.Is(err, errRefused) || !errors.Is(err, errStale) {
				t.Errorf("answer %d: %v", a, err)
			}
		default:
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("answer %d: %v", a, err)
			}
		}
	}
}
