package distributed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"ddpbatch/internal/replace"
	"ddpbatch/internal/vfs"
)

// Peers carries messages from rank to rank, beside the Group's collectives and at the same time, so it must be a communicator of its own.
// Its methods are called by several goroutines at a time, one for each other rank. Messages from one rank to another arrive whole and in
// order. If a rank has died, or ctx is done, the methods must return an error soon, on all ranks, instead of waiting forever.
type Peers interface {
	// Send sends a message, and returns when the receiver has taken it, so that a node with a slow disk has at most one in its memory.
	Send(ctx context.Context, to int, payload []byte) error
	// Recv receives the next message of a rank into buf, which has room for it, and returns its length.
	Recv(ctx context.Context, from int, buf []byte) (int, error)
}

// replicas keeps a copy of each shard on a node's own disk on the disk of another node, until the save is in the shared folder, so that the
// save survives the loss of the node (as in Gemini, Wang et al., SOSP 2023). Each rank sends its shard to a partner, and keeps those of the
// ranks whose partner it is. No save waits for that, and if it fails only the replica is lost.
type replicas struct {
	peers Peers
	to    int             // this rank's partner; -1: this rank has no shard
	from  []sender        // the ranks whose partner this rank is
	tier  *tier           // where it keeps their shards
	last  <-chan struct{} // closed when the exchange of the previous job is over; nil: there was none
	lost  bool            // the ranks can no longer exchange
	full  bool            // the disk did not accept the last replica
}

// sender is a rank that sends its shards to this one.
type sender struct {
	rank  int
	shard shardNumber
}

// newReplicas returns this rank's part, or nil if there are no replicas.
func (s *Saver) newReplicas(partners, writers []int) *replicas {
	if len(partners) == 0 || s.tier == nil {
		return nil
	}
	own := s.channel.group.Rank()
	p := &replicas{peers: s.o.Peers, to: -1, tier: s.tier.others}
	if !s.shard.none() {
		p.to = partners[own]
	}
	for _, rank := range writers {
		if partners[rank] == own {
			p.from = append(p.from, sender{rank, shardOf(rank, writers)})
		}
	}
	return p
}

// partners returns, for each rank, which rank keeps a replica of its shards. It is a rank of the next node, by the order of first ranks:
// the one with the same index there, or, if that node has fewer, one that is the partner of several. It returns nil if there is only one
// node.
func partners(nodes []string) []int {
	ranks := map[string][]int{} // by node, ascending
	var order []string
	onNode := make([]int, len(nodes)) // each rank's index on its node
	for rank, node := range nodes {
		if ranks[node] == nil {
			order = append(order, node)
		}
		onNode[rank] = len(ranks[node])
		ranks[node] = append(ranks[node], rank)
	}
	if len(order) < 2 {
		return nil
	}
	next := map[string][]int{}
	for i, node := range order {
		next[node] = ranks[order[(i+1)%len(order)]]
	}
	to := make([]int, len(nodes))
	for rank, node := range nodes {
		to[rank] = next[node][onNode[rank]%len(next[node])]
	}
	return to
}

// replicate exchanges the shards of a staged job, beside the rounds and after those of the previous job.
func (r *rounds) replicate(j *job) {
	p := r.s.replicas
	if p == nil || r.stopped {
		return
	}
	before, over := p.last, make(chan struct{})
	p.last = over
	ctx, cancel := context.WithCancel(j.ctx)
	r.copying[j.id] = cancel
	r.spawn(func() func() {
		if before != nil {
			<-before
		}
		kept := p.exchange(ctx, r.s, j)
		close(over)
		return func() {
			cancel()
			delete(r.copying, j.id)
			if j.kept = kept; j.dropped.Load() {
				p.discard(j)
			}
		}
	})
}

// endCopying waits until the exchanges of finalized jobs are over on all ranks, or until there is another job, which must not wait for a
// disk of another node. Exchanges of saves that are in the shared folder are given up; those of saves that could not be flushed run to
// their end.
func (r *rounds) endCopying() {
	for len(r.copying) > 0 && r.newest.id == r.finalized {
		select {
		case then := <-r.ended:
			r.over(then)
		case <-r.wake:
			r.take()
		}
	}
}

// exchange sends this rank's shard and receives those of others, which it returns. All ranks take part for every job; a rank without a
// shard says so.
func (p *replicas) exchange(ctx context.Context, s *Saver, j *job) []*local {
	if p.lost {
		return nil
	}
	kept, disks, peers := make([]*local, len(p.from)), make([]error, len(p.from)), make([]error, len(p.from)+1)
	var tasks sync.WaitGroup
	if p.to >= 0 {
		tasks.Go(func() { peers[len(p.from)] = p.send(ctx, s.tier, j) })
	}
	for i, from := range p.from {
		tasks.Go(func() { kept[i], disks[i], peers[i] = p.receive(ctx, from, j) })
	}
	tasks.Wait()
	lost, disk := errors.Join(peers...), errors.Join(disks...)
	switch {
	case ctx.Err() != nil: // the job is over; this is not an error
	case lost != nil:
		s.log.Warn("shards are no longer copied to other nodes: what is not in the shared folder yet can be lost with a node", "step",
			j.meta.Step, "err", lost)
	case disk != nil && !p.full:
		s.log.Warn("node-local disk does not accept the replica of another node's shard", "step", j.meta.Step, "path",
			p.tier.path, "err", disk)
	}
	p.lost, p.full = lost != nil, disk != nil
	return kept
}

// send sends the shard of a job as long as it is needed. An error means that the ranks can no longer exchange.
func (p *replicas) send(ctx context.Context, own *tier, j *job) error {
	out := &outgoing{peers: p.peers, to: p.to, buf: make([]byte, messageBytes)}
	end := givenUp
	if l := j.local; l != nil {
		err := out.file(ctx, own.fs, l.shardPath(), shardPart, j.dropped.Load)
		if err == nil {
			err = out.file(ctx, own.fs, l.recordPath(), recordPart, j.dropped.Load)
		}
		if out.lost != nil {
			return out.lost
		}
		if err == nil { // otherwise it is being removed, or the disk fails, which the flush reports
			end = allSent
		}
	}
	return out.send(ctx, end, 0)
}

// receive keeps the shard of a job that another rank sends. l is nil if none came, or if this disk did not accept it. lost means that the
// ranks can no longer exchange.
func (p *replicas) receive(ctx context.Context, from sender, j *job) (l *local, disk, lost error) {
	in := &incoming{peers: p.peers, from: from.rank, buf: make([]byte, messageBytes)}
	first, err := in.next(ctx)
	if err != nil || first == givenUp {
		return nil, nil, err
	}
	name := p.tier.saveOf(j)
	l = p.tier.localOf(name, from.shard)
	if disk = p.store(ctx, in, l, j.dropped.Load); errors.Is(disk, errUnwanted) {
		disk = nil
	}
	end, err := in.rest(ctx)
	if disk == nil && end == allSent {
		if l, disk = p.tier.inspect(name.String(), from.shard.i, from.shard.of); l != nil {
			return l, nil, nil
		}
	}
	p.tier.discard(p.tier.localOf(name, from.shard))
	return nil, disk, err
}

// store writes the shard that comes, and its record last. If stop returns true it returns errUnwanted. Its error may also be one of in.
func (p *replicas) store(ctx context.Context, in *incoming, l *local, stop func() bool) error {
	err := p.tier.writeShard(ctx, l, func(w io.Writer) error { return in.copy(ctx, w, shardPart, recordPart, stop) })
	if err != nil {
		return err
	}
	return replace.File(ctx, p.tier.fs, l.recordPath(), func(w io.Writer) error { return in.copy(ctx, w, recordPart, allSent, stop) })
}

// discard removes what is kept of a job.
func (p *replicas) discard(j *job) {
	for _, l := range j.kept {
		if l != nil {
			p.tier.discard(l)
		}
	}
	j.kept = nil
}

// messageBytes is the maximum length of a message of a stream. Each of a rank's streams keeps one message.
const messageBytes = 256 << 10

// What a message of a stream holds, by its first byte: bytes of the shard, then of its record, then one of the ends.
const (
	shardPart  byte = 's'
	recordPart byte = 'r'
	allSent    byte = 'e'
	givenUp    byte = 'x' // there is no shard, or it is no longer needed
)

// outgoing is a stream to another rank.
type outgoing struct {
	peers Peers
	to    int
	buf   []byte
	lost  error // why nothing can be sent any more
}

// file sends a file's bytes, until stop returns true. An error that is not also in lost is the disk's.
func (o *outgoing) file(ctx context.Context, fsys vfs.FS, path string, kind byte, stop func() bool) error {
	f, err := fsys.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	for at := int64(0); ; {
		if stop() {
			return errUnwanted
		}
		n, err := f.ReadAt(o.buf[1:], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			return nil
		}
		if err := o.send(ctx, kind, n); err != nil {
			return err
		}
		at += int64(n)
	}
}

var errUnwanted = errors.New("the replica is no longer needed")

// send sends a message of n bytes, which are already in buf.
func (o *outgoing) send(ctx context.Context, kind byte, n int) error {
	o.buf[0] = kind
	o.lost = o.peers.Send(ctx, o.to, o.buf[:1+n])
	return o.lost
}

// incoming is a stream from another rank.
type incoming struct {
	peers Peers
	from  int
	buf   []byte
	kind  byte   // of the message that is not consumed yet; 0: none
	bytes []byte // of that message
	lost  error  // why nothing can be received any more
}

// next returns the kind of the next message, which stays for copy. After an end it returns that end every time.
func (in *incoming) next(ctx context.Context) (byte, error) {
	if in.kind != 0 || in.lost != nil {
		return in.kind, in.lost
	}
	n, err := in.peers.Recv(ctx, in.from, in.buf)
	if err == nil && n == 0 {
		err = fmt.Errorf("rank %d sent an empty message", in.from)
	}
	if err != nil {
		in.lost = err
		return 0, err
	}
	in.kind, in.bytes = in.buf[0], in.buf[1:n]
	return in.kind, nil
}

func (in *incoming) ended() bool { return in.kind == allSent || in.kind == givenUp }

// copy writes the bytes of one kind, up to the first message of the kind that follows. It returns errUnwanted if not all of it comes,
// because the sender has given up, or if stop returns true.
func (in *incoming) copy(ctx context.Context, w io.Writer, kind, follows byte, stop func() bool) error {
	for {
		next, err := in.next(ctx)
		switch {
		case err != nil:
			return err
		case next != kind && next != follows || stop():
			return errUnwanted
		case next == follows:
			return nil
		}
		if _, err := w.Write(in.bytes); err != nil {
			return err
		}
		in.kind = 0
	}
}

// rest receives and discards the remaining messages, and returns how the stream ends.
func (in *incoming) rest(ctx context.Context) (end byte, err error) {
	for {
		end, err = in.next(ctx)
		if err != nil || in.ended() {
			return end, err
		}
		in.kind = 0
	}
}
