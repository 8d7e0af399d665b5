package distributed

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"ddpbatch/checkpoint"
)

// job is one save on this rank, from Save until it is settled.
type job struct {
	id     uint64          // 1, 2, ...; the same on all ranks
	ctx    context.Context // of the call of Save, which governs the background part, too
	meta   Meta
	began  time.Time
	pieces []checkpoint.Piece // of the copy, or of the live arrays
	copy   int                // the number of the copy that pieces are of
	full   bool

	// Set by the task that stages it; read once that is over.
	refused error  // what Check said
	local   *local // the shard on the node's own disk; nil: it is to be written from pieces

	kept    []*local    // replicas of other nodes' shards; set when their exchange is over
	dropped atomic.Bool // nobody needs what is on the nodes' own disks any more
}

// check runs the caller's check over all pieces.
func (j *job) check(f func(name string, data []byte) error) error {
	if f == nil {
		return nil
	}
	for _, p := range j.pieces {
		if err := j.ctx.Err(); err != nil {
			return err
		}
		if err := f(p.Tensor, p.Data); err != nil {
			return fmt.Errorf("check of step %d: %s: %w", j.meta.Step, p.Tensor, err)
		}
	}
	return nil
}

// status is what a rank tells rank 0 in a round.
type status struct {
	Newest uint64 `json:"newest"` // the job submitted last, and its step
	Step   int64  `json:"step"`
	Ready  uint64 `json:"ready"` // the newest that this rank is ready to publish, or refuses to
	Safe   uint64 `json:"safe"`  // the newest that is on the node's own disk
	// Refused is why Ready must not be published.
	Refused *failure `json:"refused,omitempty"`
	Writing *written `json:"writing,omitempty"` // nil: nothing is being published
}

// written is how far a rank is with its shard of a publication.
type written struct {
	ID      uint64               `json:"id"`
	Over    bool                 `json:"over"`
	Shard   checkpoint.ShardInfo `json:"shard"`
	Failure *failure             `json:"failure,omitempty"`
}

// decision is rank 0's answer to a round.
type decision struct {
	Chosen   uint64   `json:"chosen,omitempty"` // is to be published: keep what it needs
	Start    *ticket  `json:"start,omitempty"`
	Cancel   bool     `json:"cancel,omitempty"` // what is being published
	Settled  *outcome `json:"settled,omitempty"`
	Complete uint64   `json:"complete"` // all ranks' copies up to this job are free again
	Idle     bool     `json:"idle"`     // nothing is being published, or could be
}

// ticket lets a rank write its shard of a job.
type ticket struct {
	ID    uint64 `json:"id"`
	Draft []byte `json:"draft"`
	Quick bool   `json:"quick,omitempty"` // shards are not encoded
}

// outcome is how a job ended.
type outcome struct {
	ID      uint64   `json:"id"`
	Failure *failure `json:"failure,omitempty"`
	// Replaced says that what failed was a node's own disk, and that all ranks have a newer save in flight: nobody need hear of it.
	Replaced bool            `json:"replaced,omitempty"`
	Info     checkpoint.Info `json:"info"` // where Committed
	Times    phases          `json:"times"`
}

// phases are the times of a save in seconds: of the slowest rank, and of the commit.
type phases struct {
	Encode float64 `json:"encode"`
	Write  float64 `json:"write"`
	Sync   float64 `json:"sync"`
	Commit float64 `json:"commit"`
}
