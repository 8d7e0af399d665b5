package ddp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"ddpbatch/mpi"
	"ddpbatch/trainer/nn"
)

var errClosed = errors.New("the DDP is closed")

// DDP is one rank's replica of a model. It is used by one goroutine at a time.
type DDP struct {
	comm    *mpi.Comm
	cfg     Config
	members []*member // in the order of the model
	member  map[*nn.Param]*member

	state    []*nn.Buffer
	packed   []float32 // the values of state, one after another
	source   [1]int32  // the rank that they come from
	syncTime time.Duration

	arena   []float32 // all gradients
	buckets []*Bucket
	order   []int32 // the arena's: places in members
	next    []int32 // the order from the next step on; nil: no change
	settled bool    // order will not change any more
	unbound bool    // the Hook does not know the buckets yet
	means   bool    // the gradients are the last step's means, and maybe more

	step  step
	stats Stats
	err   error // what has ended it
}

// member is a parameter's place in the buckets.
type member struct {
	param  *nn.Param
	index  int // in DDP.members
	uses   int // how often the model has it: that many calls of Pass.Done make its gradient complete
	left   int // of them, in this step
	bucket int
}

// New wraps a model, given as its parameters and buffers, each of which has a name of its own. It returns an error, on every rank, unless
// all ranks have the same names and shapes in the same order, and the same cfg. It then gives all ranks rank 0's values, and moves the
// gradients into memory of the Comm's, where they stay, all zero at first, until Close.
//
// A parameter that is listed several times has a complete gradient when that many calls of Pass.Done have been made for it.
func New(ctx context.Context, comm *mpi.Comm, params []*nn.Param, buffers []*nn.Buffer, cfg Config) (*DDP, error) {
	if err := together(ctx, comm, cmp.Or(cfg.validate(), checkTensors(params, buffers))); err != nil {
		return nil, err
	}
	cfg = cfg.complete()
	d := &DDP{comm: comm, cfg: cfg, member: map[*nn.Param]*member{}, state: buffers}
	for _, p := range params {
		m := d.member[p]
		if m == nil {
			m = &member{param: p, index: len(d.members)}
			d.member[p] = m
			d.members = append(d.members, m)
		}
		m.uses++
	}
	if err := agreeOn(ctx, comm, describe(d.params(), buffers, cfg)); err != nil {
		return nil, err
	}
	if err := d.broadcastValues(ctx); err != nil {
		return nil, fmt.Errorf("broadcast rank 0's parameters and buffers: %w", err)
	}
	d.firstOrder()
	d.step.init(d)
	if err := d.takeGradients(ctx); err != nil {
		return nil, err
	}
	return d, nil
}

// params is the parameters, each once.
func (d *DDP) params() []*nn.Param {
	params := make([]*nn.Param, len(d.members))
	for i, m := range d.members {
		params[i] = m.param
	}
	return params
}

func (d *DDP) broadcastValues(ctx context.Context) error {
	var values [][]float32
	for _, m := range d.members {
		values = append(values, m.param.Value)
	}
	n := 0
	for _, b := range d.state {
		values = append(values, b.Value)
		n += len(b.Value)
	}
	d.packed = make([]float32, n)
	return mpi.BroadcastMany(ctx, d.comm, values, 0)
}

// ZeroGrad sets all gradients of this rank to zero, and unused. It is not collective.
func (d *DDP) ZeroGrad() {
	if d.step.open {
		panic("ddp: ZeroGrad between Begin and Finish")
	}
	for _, m := range d.members {
		clear(m.param.Grad)
		m.param.HasGrad = false
	}
	d.means = false
}

// Close gives the parameters gradients of their own, all zero. A model that outlives the Comm needs it, as the memory goes with
// that. Between Begin and Finish, Close gives the step up, which breaks the Comm.
func (d *DDP) Close() {
	switch {
	case d.err != nil:
		d.end()
	case d.step.open:
		d.abandon(errClosed)
	default:
		d.err = errClosed
		d.detach()
	}
}

// fail ends the DDP, on the other ranks, too, and returns what has ended it.
func (d *DDP) fail(err error) error {
	if d.err == nil {
		d.err = err
		d.breakComms(err)
		d.detach()
	}
	return d.err
}

// breakComms has the calls of all ranks fail for the given reason, those of Forward and Backward, too. It may be called while others of
// this rank go on.
func (d *DDP) breakComms(reason error) {
	breakComm(d.comm, reason)
	if b := d.cfg.SyncBatchNorm; b != nil {
		breakComm(b.comm, reason)
	}
}

// detach gives each parameter a gradient of its own: after a failure, other ranks may still write to the Comm's memory.
func (d *DDP) detach() {
	for _, m := range d.members {
		m.param.Grad, m.param.HasGrad = make([]float32, len(m.param.Value)), false
	}
	d.arena, d.next = nil, nil
}
