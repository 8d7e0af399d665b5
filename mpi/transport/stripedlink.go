package transport

// cellBytes is how many bytes go on one stream of a striped link before the next has its turn.
const cellBytes = 256 << 10

// stripedLink is a Link made of several Links, each over a TCP connection of its own. Its bytes are cut into cells of one size; cell i goes
// by stream i mod len(streams). Both ends count, so nothing is sent beside the bytes.
type stripedLink struct {
	streams []Link
	cell    int
	out, in turn
	failure error // of Read, to be told by the next one, as this one had bytes
}

// turn is the stream whose cell one direction is in, and how much of that cell is left.
type turn struct{ stream, left int }

func newStripedLink(streams []Link, cell int) *stripedLink {
	return &stripedLink{streams: streams, cell: cell, out: turn{left: cell}, in: turn{left: cell}}
}

// pass moves on by n bytes, which the cell has.
func (l *stripedLink) pass(t *turn, n int) {
	if t.left -= n; t.left == 0 {
		*t = turn{stream: (t.stream + 1) % len(l.streams), left: l.cell}
	}
}

// Write implements Link.
func (l *stripedLink) Write(head, body []byte) (int, error) {
	total := 0
	for len(head)+len(body) > 0 {
		h := head[:min(len(head), l.out.left)]
		b := body[:min(len(body), l.out.left-len(h))]
		n, err := l.streams[l.out.stream].Write(h, b)
		total += n
		l.pass(&l.out, n)
		if n < len(h)+len(b) || err != nil {
			return total, err
		}
		head, body = head[len(h):], body[len(b):]
	}
	return total, nil
}

// Read implements Link. The end is that of the stream whose turn it is.
func (l *stripedLink) Read(buf []byte) (int, error) {
	total := 0
	for total < len(buf) && l.failure == nil {
		part := buf[total:min(len(buf), total+l.in.left)]
		n, err := l.streams[l.in.stream].Read(part)
		total += n
		l.pass(&l.in, n)
		l.failure = err
		if n < len(part) {
			break
		}
	}
	if total > 0 {
		return total, nil
	}
	return 0, l.failure
}
