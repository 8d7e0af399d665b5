package transport

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"ddpbatch/internal/testkit"
)

// links returns both links to a rank.
func links(f Fabric, to int) map[string]Link {
	return map[string]Link{"control": f.Control(to), "data": f.Data(to)}
}

// readN reads n bytes.
func readN(t testing.TB, l Link, n int) []byte {
	t.Helper()
	buf, got := make([]byte, n), 0
	testkit.Eventually(t, "bytes come", func() bool {
		k, err := l.Read(buf[got:])
		if err != nil {
			t.Fatalf("after %d of %d bytes: %v", got, n, err)
		}
		got += k
		return got == n
	})
	return buf
}

// Bytes arrive in the order in which they were sent, in pieces of any size, even if they exceed what the link holds. A read without data
// and a write without room are not errors.
func TestLinkIsAStream(t *testing.T) {
	forEachKind(t, func(t *testing.T, join func(testing.TB, int) []Fabric) {
		fabrics := join(t, 2)
		letWork(t, fabrics)
		for name, l := range links(fabrics[0], 1) {
			other := links(fabrics[1], 0)[name]
			if n, err := other.Read(make([]byte, 10)); n != 0 || err != nil {
				t.Fatalf("%s: an empty link gave %d bytes, %v", name, n, err)
			}
			if n, err := l.Write(nil, nil); n != 0 || err != nil {
				t.Fatalf("%s: writing nothing wrote %d bytes, %v", name, n, err)
			}
			sent := make([]byte, 10<<20)
			for i := range sent {
				sent[i] = byte(i * (i>>8 + 1))
			}
			done := make(chan error, 1)
			go func() {
				for at, piece := 0, 1; at < len(sent); piece = piece*3%(1<<20) + 1 {
					part := sent[at:min(at+piece, len(sent))]
					n, err := l.Write(part[:len(part)/2], part[len(part)/2:])
					if err != nil || n < 0 || n > len(part) {
						done <- errors.Join(err, errors.New("a wrong count"))
						return
					}
					at += n
				}
				done <- nil
			}()
			got := readN(t, other, len(sent))
			if err := <-done; err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !bytes.Equal(got, sent) {
				t.Errorf("%s: other bytes came out", name)
			}
		}
	})
}

// A link whose other end does not read takes no more bytes at some point, except in a Network. It takes more after a read.
func TestLinkFillsUp(t *testing.T) {
	forEachKind(t, func(t *testing.T, join func(testing.TB, int) []Fabric) {
		fabrics := join(t, 2)
		letWork(t, fabrics)
		if _, endless := fabrics[0].(*networkRank); endless {
			t.Skip("a Network takes everything")
		}
		for name, l := range links(fabrics[0], 1) {
			sent, block := 0, make([]byte, 1<<20)
			testkit.Eventually(t, "the link is full", func() bool {
				n, err := l.Write(nil, block)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				sent += n
				return n == 0
			})
			_, single := l.(*tcpLink)
			_, shared := l.(*sharedLink)
			if single || shared {
				readN(t, links(fabrics[1], 0)[name], sent)
				if n, err := l.Write(nil, []byte("more")); n != 4 || err != nil {
					t.Errorf("%s: after it was read empty it took %d bytes, %v", name, n, err)
				}
				continue
			}
			other, more, got := links(fabrics[1], 0)[name], block[:4], 0
			testkit.Eventually(t, "all comes, and more", func() bool {
				n, err := l.Write(nil, more) // may first send the rest of what the link holds
				more = more[n:]
				k, readErr := other.Read(block)
				if got += k; err != nil || readErr != nil {
					t.Fatalf("%s: %v, %v", name, err, readErr)
				}
				return len(more) == 0 && got == sent+4
			})
		}
	})
}

// On both links the other side reads everything that was written before the end, and then io.EOF. Later writes fail. Shared memory does not
// show the end.
func TestLinkEndsAfterTheLastByte(t *testing.T) {
	forEachKind(t, func(t *testing.T, join func(testing.TB, int) []Fabric) {
		fabrics := join(t, 2)
		letWork(t, fabrics)
		words := make([]byte, 100<<10)
		for i := range words {
			words[i] = byte(i * 7)
		}
		taken := map[string]int{}
		for name, l := range links(fabrics[0], 1) {
			n, err := l.Write(words[:5], words[5:])
			if n < 10 || err != nil {
				t.Fatal(n, err)
			}
			taken[name] = n
		}
		closed := make(chan struct{})
		go func() { // Close may wait for the reads below
			fabrics[0].Close()
			close(closed)
		}()
		defer func() { <-closed }()
		for name, l := range links(fabrics[1], 0) {
			if got := readN(t, l, taken[name]); !bytes.Equal(got, words[:len(got)]) {
				t.Errorf("%s: %d bytes, and not those that were written", name, len(got))
			}
			if _, mute := l.(*sharedLink); mute {
				if n, err := l.Read(make([]byte, 1)); n != 0 || err != nil {
					t.Errorf("%s: then %d bytes, %v", name, n, err)
				}
				continue
			}
			testkit.Eventually(t, "the link ends", func() bool {
				fabrics[1].Ready(nil) // looks at the connections
				n, err := l.Read(make([]byte, 1))
				if n != 0 || err != nil && !errors.Is(err, io.EOF) {
					t.Fatal(name, n, err)
				}
				return err != nil
			})
			testkit.Eventually(t, "writing fails", func() bool { _, err := l.Write([]byte("x"), nil); return err != nil })
		}
	})
}

// Moving bytes does not allocate memory.
func TestLinkDoesNotAllocate(t *testing.T) { // without the race detector
	for _, name := range []string{"tcp", "streams", "shared", "ucx"} {
		t.Run(name, func(t *testing.T) {
			fabrics := kinds[name](t, 2)
			for which, l := range links(fabrics[0], 1) {
				other := links(fabrics[1], 0)[which]
				head, body, buf := make([]byte, 48), make([]byte, 1000), make([]byte, 2000)
				if n := testing.AllocsPerRun(200, func() {
					l.Write(head, body)
					for got := 0; got < 1048; {
						n, err := other.Read(buf)
						if err != nil {
							t.Fatal(err)
						}
						got += n
					}
				}); n != 0 {
					t.Errorf("%s: %v allocations", which, n)
				}
			}
		})
	}
}
