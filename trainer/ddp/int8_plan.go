package ddp

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// int8Plan is how one bucket is sent. Blocks begin with parameters, and a parameter's blocks have the same owners in all buckets, so that
// neither means nor residuals depend on how parameters are dealt to buckets.
type int8Plan struct {
	blocks []int8Block // by owner
	bytes  []int       // of the records of each owner
	size   int         // of all records

	first, last int // of the blocks, this rank's
	begin       int // of its records, in those of all
	elements    int // in its blocks
}

// int8Block is a part of a bucket.
type int8Block struct {
	begin, end int // in the bucket's Data
	at         int // of its record, in those of all
	owner      int // the rank that averages it
}

func newInt8Plan(b *Bucket, world, rank int) int8Plan {
	plan := int8Plan{bytes: make([]int, world)}
	offset := 0
	for _, p := range b.Params {
		n := len(p.Grad)
		count := (n + blockSize - 1) / blockSize
		h := fnv.New32a()
		h.Write([]byte(p.Name))
		start := int(h.Sum32() % uint32(world)) // not all small parameters with rank 0
		for i := range count {
			plan.blocks = append(plan.blocks, int8Block{
				begin: offset + i*blockSize,
				end:   offset + min((i+1)*blockSize, n),
				owner: (i*world/count + start) % world,
			})
		}
		offset += n
	}
	slices.SortStableFunc(plan.blocks, func(a, b int8Block) int { return cmp.Compare(a.owner, b.owner) })
	for i := range plan.blocks {
		block := &plan.blocks[i]
		block.at = plan.size
		plan.size += block.recordSize()
		plan.bytes[block.owner] += block.recordSize()
		switch {
		case block.owner < rank:
			plan.first, plan.begin = i+1, plan.size
		case block.owner == rank:
			plan.elements += block.end - block.begin
		}
		if block.owner <= rank {
			plan.last = i + 1
		}
	}
	return plan
}

// mine are the blocks that this rank averages.
func (p *int8Plan) mine() []int8Block { return p.blocks[p.first:p.last] }

func (b int8Block) recordSize() int { return scaleSize + b.end - b.begin }

// record returns the block's record of all.
func (b int8Block) record(all []byte) []byte { return all[b.at:][:b.recordSize()] }

// of returns the block's part of a bucket.
func (b int8Block) of(data []float32) []float32 { return data[b.begin:b.end] }
