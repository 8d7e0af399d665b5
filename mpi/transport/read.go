package transport

import "fmt"

// read is the reader goroutine of one peer. It ends with the connection, a goodbye or a failure.
func (m *TCP) read(p *peer) {
	for {
		h, err := p.readHeader()
		if err == nil {
			switch h.kind {
			case kindBye:
				p.last.Store(h.call.Seq)
				close(p.gone)
				return
			case kindAbort:
				err = m.readAbort(p, h.length)
			case kindData:
				err = m.admit(p, h)
			}
		}
		if err != nil {
			m.fail(at(p, err))
			return
		}
		select {
		case buf := <-p.post:
			err := m.deliver(p, h, buf)
			p.got <- err
			if err != nil {
				return
			}
		case <-m.failed:
			return
		}
	}
}

// at adds the rank to an error that does not name one.
func at(p *peer, err error) error {
	switch err.(type) {
	case *MismatchError, *AbortError:
		return err
	}
	return &PeerError{Rank: p.rank, Err: err}
}

// readAbort returns the failure that the peer reports.
func (m *TCP) readAbort(p *peer, length uint32) error {
	payload := make([]byte, length)
	if err := p.readPayload(payload); err != nil {
		return err
	}
	told, err := decodeAbort(payload, m.size)
	if err != nil {
		return err
	}
	return told
}

// admit checks a frame against this rank's call before anyone waits for it: ranks
// that made different calls may both wait for a third, or not at all.
func (m *TCP) admit(p *peer, h header) error {
	p.last.Store(h.call.Seq)
	m.mu.Lock()
	defer m.mu.Unlock()
	a := arrival{from: p.rank, call: h.call}
	if h.call.Seq > m.call.Seq {
		m.early = append(m.early, a)
	} else if h.call != m.call {
		return m.mismatch(a)
	}
	return nil
}

// deliver reads the payload of a frame into the buffer that Recv has posted for
// the current call.
func (m *TCP) deliver(p *peer, h header, buf []byte) error {
	m.mu.Lock()
	if h.call != m.call {
		defer m.mu.Unlock()
		return m.mismatch(arrival{from: p.rank, call: h.call})
	}
	m.mu.Unlock()
	if int(h.length) != len(buf) {
		return at(p, fmt.Errorf("%w: a frame of %d bytes where %d are due", ErrProtocol, h.length, len(buf)))
	}
	if err := p.readPayload(buf); err != nil {
		return at(p, err)
	}
	return nil
}
