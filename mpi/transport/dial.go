package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"ddpbatch/internal/auth"
)

// Pauses between attempts to reach a rank double from the first to the longest.
const (
	firstPause   = 10 * time.Millisecond
	longestPause = time.Second
)

// route is where a rank listens, and the key of the connections to it.
type route struct {
	addr netip.AddrPort
	key  auth.Secret
}

// dial connects to a lower rank, trying until ctx ends. Its error is one that
// trying again does not mend.
func (s *meeting) dial(ctx context.Context, rank int) error {
	s.note(rank, "it has not published an address")
	text, err := s.cfg.Directory.Get(ctx, addressKey(rank))
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look up rank %d: %w", rank, err)
	}
	addr, machine, ticket, err := decodeEntry(text)
	if err != nil {
		return fmt.Errorf("look up rank %d: %w", rank, err)
	}
	s.note(rank, "%s does not answer", addr)
	st, to := &seat{rank: rank, near: machine == s.machine}, route{addr, s.cfg.key(ticket)}
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		st.try++
		err := s.visit(ctx, to, st)
		if err == nil {
			s.seatAll(st)
			return nil
		}
		st.close()
		st.control, st.pair, st.streams = nil, nil, nil
		if ctx.Err() != nil {
			return nil // the reason of the attempt before says more
		}
		s.note(rank, "%v", err)
		if errors.Is(err, errRefused) {
			return err
		}
		s.cfg.Log.Debug("another rank could not be reached yet", "rank", rank, "addr", addr, "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// visit makes one try at st's rank, and offers memory if that is on the same machine. What it has opened when it
// fails is in st.
func (s *meeting) visit(ctx context.Context, to route, st *seat) (err error) {
	if s.cfg.Sharing == ShareAlways && !st.near {
		return fmt.Errorf("%w: rank %d: %w", errRefused, st.rank, errNoSharing)
	}
	var offer *pair
	if s.cfg.Sharing != ShareNever && st.near {
		if offer, err = newPair(); err != nil {
			return err
		}
	}
	shared := false
	st.control, shared, err = s.knock(ctx, to, st, 0, offer)
	if shared {
		st.pair = offer
		return nil
	}
	if offer != nil {
		offer.close()
	}
	if err != nil {
		return err
	}
	if s.cfg.Sharing == ShareAlways {
		return fmt.Errorf("%w: rank %d: %w", errRefused, st.rank, errNoSharing)
	}
	return s.visitMore(ctx, to, st)
}

// visitMore opens the streams of the data link.
func (s *meeting) visitMore(ctx context.Context, to route, st *seat) error {
	st.streams = make([]*sealedConn, s.cfg.streams(st.near))
	errs := make([]error, len(st.streams))
	var tasks sync.WaitGroup
	for i := range st.streams {
		tasks.Go(func() { st.streams[i], _, errs[i] = s.knock(ctx, to, st, i+1, nil) })
	}
	tasks.Wait()
	return cmp.Or(errs...)
}

// knock connects, as the control link or, from 1 on, as a stream of the data link, and tells whether the other rank shares the
// memory offered.
func (s *meeting) knock(ctx context.Context, to route, st *seat, stream int, offer *pair) (_ *sealedConn, shared bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, auth.Timeout)
	defer cancel()
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", to.addr.String())
	if err != nil {
		return nil, false, err
	}
	conn := c.(*net.TCPConn)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	var keys *sealing
	if err = tune(conn); err == nil {
		keys, shared, err = s.introduce(ctx, conn, to.key, st, stream, offer)
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, false, err
	}
	return &sealedConn{conn, keys}, shared, nil
}

// introduce goes through the handshake of a connection that was dialled.
func (s *meeting) introduce(
	ctx context.Context, conn *net.TCPConn, key auth.Secret, st *seat, stream int, offer *pair,
) (keys *sealing, shared bool, err error) {
	addr := conn.RemoteAddr()
	ours := s.hello(stream, st.try, st.near, offer).encode()
	theirs, err := auth.Client(ctx, conn, key, s.cfg.binding(), ours)
	if errors.Is(err, auth.ErrRefused) {
		err = fmt.Errorf("%w; or one of the two ranks encrypts its data (mpi.encrypt), and the other does not", err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", addr, err)
	}
	h, err := decodeHello(theirs)
	if err != nil {
		return nil, false, fmt.Errorf("%s: %w", addr, err)
	}
	if int64(h.size) != int64(s.cfg.Size) {
		return nil, false, fmt.Errorf("%w: rank %d is in a world of %d, and this one in a world of %d: start all ranks with the same world size",
			errRefused, h.rank, h.size, s.cfg.Size)
	}
	if int64(h.rank) != int64(st.rank) {
		return nil, false, fmt.Errorf("%s is rank %d, not rank %d", addr, h.rank, st.rank)
	}
	keys = newSealing(key, ours, theirs, true)
	reply, err := keys.hear(conn)
	if err != nil {
		return nil, false, fmt.Errorf("%s: wait for its answer: %w", addr, err)
	}
	if err := answer(reply).err(); err != nil {
		return nil, false, fmt.Errorf("rank %d at %s: %w", st.rank, addr, err)
	}
	use := useNoMemory
	if answer(reply) == sharing && offer != nil && offer.openBell(h) == nil {
		use = useMemory
	}
	err = keys.say(conn, use)
	return keys, err == nil && use == useMemory, err
}

// hello says who this rank is, which of its connections this is, and what memory it offers.
func (s *meeting) hello(stream int, try uint32, near bool, offer *pair) hello {
	h := hello{
		rank: uint32(s.cfg.Rank), size: uint32(s.cfg.Size), nonce: s.nonce,
		stream: uint32(stream), streams: uint32(s.cfg.streams(near)), try: try,
	}
	if near {
		h.near = 1
	}
	if s.cfg.Sharing != ShareNever {
		h.pid, h.bell = uint32(os.Getpid()), uint32(s.bell.write)
	}
	if offer != nil {
		h.memory = offer.segment.Handle().Encode()
	}
	return h
}
