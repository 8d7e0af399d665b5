package checkpoint

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/half"
)

const (
	maxStep = manifest.MaxStep
	maxName = manifest.MaxName
)

// State is all that one checkpoint holds. The caller owns what Latest and Load return.
type State struct {
	Step    int64 // 0 to 999,999,999,999
	World   int   // ranks that trained, at least 1
	Tensors []Tensor
	// Values are small facts kept in the manifest itself: sampler position, random
	// state, learning rate. Keys match [a-z0-9_.]{1,64}. Values come back without the white space
	// between their tokens, and otherwise byte for byte.
	Values map[string]json.RawMessage
	// Metrics are finite numbers by which the best checkpoints are chosen (Policy.Best). Their keys have
	// the form of those of Values.
	Metrics map[string]float64
	// Check, unless nil, is called after all of the state has been read and before the commit. If it returns an error, the save fails and
	// no checkpoint is made. It is for tensors that somebody else could change while Save reads them (Tensor.From).
	Check func() error
}

// Tensor is a named array. Data is row-major and little-endian. The State that holds
// the tensor owns Data.
type Tensor struct {
	Name  string // 1 to 256 bytes of UTF-8 without control characters
	DType string // bool, float16, bfloat16, float32, float64, float8_e4m3fn, float8_e5m2, complex64, or int or uint with 8, 16, 32 or 64
	Shape []int  // empty: a scalar; a dimension may be 0
	Data  []byte
	// From, unless nil, holds the bytes in place of Data, as many as the shape takes. Save reads each
	// byte once, with several goroutines, and holds few of them in memory. Loaded tensors have no From.
	From io.ReaderAt
}

// Save commits a checkpoint of s, by this process alone, and then removes what Options.Keep does not
// keep. When it returns nil the checkpoint is durable. It only reads s. If the step has a checkpoint
// already, the new one takes precedence over it, unless a later attempt has saved or superseded the step:
// then nothing is saved (ErrFenced). Errors are as Commit's. If an Info whose Committed is true comes with
// an error, the commit stands.
func (d *Dir) Save(ctx context.Context, s *State) (Info, error) {
	if err := d.recordable(s); err != nil {
		return Info{}, fmt.Errorf("save checkpoint of step %d: %w", s.Step, err)
	}
	dr, err := d.NewDraft(ctx, s.Step)
	if err != nil {
		return Info{}, err
	}
	defer dr.Abort()
	written, err := dr.WriteShard(ctx, 0, 1, s.pieces())
	if err != nil {
		return Info{}, err
	}
	if s.Check != nil {
		if err := s.Check(); err != nil {
			return Info{}, fmt.Errorf("save checkpoint of step %d: %w", s.Step, err)
		}
	}
	c := s.commit()
	c.Shards = []ShardInfo{written}
	committed, err := dr.Commit(ctx, c)
	if committed == nil {
		return Info{}, err
	}
	return committed.Info(), err
}

// recordable checks that the manifest of a state can be read back, so that a state that cannot be recorded
// is refused before anything is written.
func (d *Dir) recordable(s *State) error {
	if err := s.validate(); err != nil {
		return err
	}
	tag := manifest.Tag{Attempt: d.opt.Attempt, Run: d.run}
	c := s.commit()
	raw := int64(0)
	for _, t := range s.Tensors {
		raw += t.size()
	}
	c.Shards = []ShardInfo{{File: tag.ShardName(0, 1), Size: manifest.MaxShardBytes, Raw: raw}}
	_, err := d.manifestOf(tag, s.Step, c).Encode()
	return err
}

// Latest loads the checkpoint that FindLatest would find if it read all data: every byte has been
// checked. Errors are as FindLatest's.
func (d *Dir) Latest(ctx context.Context) (*State, Info, error) {
	var s *State
	c, err := d.latest(ctx, func(ctx context.Context, c *Checkpoint) (err error) {
		s, err = c.load(ctx)
		return err
	})
	if err != nil {
		return nil, Info{}, err
	}
	return s, c.Info(), c.Close()
}

// Load loads the checkpoint of a step and checks every byte. It returns ErrNone if the step is not committed.
// Of several saves of the step it takes the one that Find does.
func (d *Dir) Load(ctx context.Context, step int64) (*State, error) {
	var s *State
	c, err := d.find(ctx, step, func(ctx context.Context, c *Checkpoint) (err error) {
		s, err = c.load(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("load checkpoint of step %d: %w", step, classify(err))
	}
	return s, c.Close()
}

// load reads all of c. It allocates the tensors only after the shards' tables have shown
// that they hold this many bytes.
func (c *Checkpoint) load(ctx context.Context) (*State, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	s := &State{Step: c.m.Step, World: c.m.World, Values: c.m.Values, Metrics: c.m.Metrics, Tensors: make([]Tensor, len(c.m.Tensors))}
	targets := make([]Target, len(c.m.Tensors))
	for i, t := range c.m.Tensors {
		s.Tensors[i] = Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape, Data: make([]byte, bytesOf(t))}
		targets[i] = Target{Name: t.Name, Data: s.Tensors[i].Data}
	}
	if err := c.Read(ctx, targets); err != nil {
		return nil, err
	}
	return s, nil
}

// pieces lays the tensors of a state into one shard.
func (s *State) pieces() []Piece {
	var pieces []Piece
	for _, t := range s.Tensors {
		if n := t.size(); n > 0 {
			pieces = append(pieces, Piece{Tensor: t.Name, DType: t.DType, Shape: t.Shape, Data: t.Data, From: t.From, Length: n})
		}
	}
	return pieces
}

// commit returns the Commit of a state whose pieces are in shard 0 of 1.
func (s *State) commit() Commit {
	c := Commit{World: s.World, Values: s.Values, Metrics: s.Metrics, Tensors: make([]TensorPlan, len(s.Tensors))}
	offset := int64(0)
	for i, t := range s.Tensors {
		c.Tensors[i] = TensorPlan{Name: t.Name, DType: t.DType, Shape: t.Shape}
		if n := t.size(); n > 0 {
			c.Tensors[i].Extents = []Extent{{Offset: offset, Length: n}}
			offset += n
		}
	}
	return c
}

// validate refuses tensors and values that contradict their descriptions. The manifest checks the
// rest.
func (s *State) validate() error {
	for _, t := range s.Tensors {
		size, err := manifest.ByteSize(t.DType, t.Shape)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if t.From != nil && t.Data != nil {
			return fmt.Errorf("tensor %q has both Data and From: set one of them", t.Name)
		}
		if size != t.size() {
			return fmt.Errorf("tensor %q: shape %v of %s needs %d bytes, but Data has %d", t.Name, t.Shape, t.DType, size, len(t.Data))
		}
	}
	for key, value := range s.Values {
		if !json.Valid(value) { // encoding/json would accept nil
			return fmt.Errorf("value %q is not JSON", key)
		}
	}
	return nil
}

// size returns how many bytes the tensor has, or, with From, must have.
func (t *Tensor) size() int64 {
	if t.From == nil {
		return int64(len(t.Data))
	}
	size, _ := manifest.ByteSize(t.DType, t.Shape) // validate says what is wrong with it
	return size
}

// Float32Tensor copies v into a tensor. It panics if the shape does not hold len(v) elements.
func Float32Tensor(name string, shape []int, v []float32) Tensor {
	size, err := manifest.ByteSize("float32", shape)
	if err != nil || size != 4*int64(len(v)) {
		panic("checkpoint: shape does not fit the values")
	}
	data := make([]byte, 4*len(v))
	for i, x := range v {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(x))
	}
	return Tensor{Name: name, DType: "float32", Shape: append([]int{}, shape...), Data: data}
}

// Float32s copies t into dst. It returns an error if type or size differ.
func (t Tensor) Float32s(dst []float32) error {
	if t.DType != "float32" {
		return fmt.Errorf("tensor %q holds %s, not float32", t.Name, t.DType)
	}
	if len(t.Data) != 4*len(dst) {
		return fmt.Errorf("tensor %q holds %d bytes (shape %v), not %d float32 values", t.Name, len(t.Data), t.Shape, len(dst))
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
	}
	return nil
}

// ConvertTo copies t, of float32, float64, float16 or bfloat16, into dst. float64 is rounded; the others fit exactly.
func (t Tensor) ConvertTo(dst []float32) error {
	size, known := manifest.ElemSize(t.DType)
	if !known || len(t.Data) != size*len(dst) {
		return fmt.Errorf("tensor %q holds %d bytes of %s, not %d numbers", t.Name, len(t.Data), t.DType, len(dst))
	}
	var number func(b []byte) float32
	switch t.DType {
	case "float32":
		return t.Float32s(dst)
	case "float64":
		number = func(b []byte) float32 { return float32(math.Float64frombits(binary.LittleEndian.Uint64(b))) }
	case "float16":
		number = func(b []byte) float32 { return half.FromFloat16(binary.LittleEndian.Uint16(b)) }
	case "bfloat16":
		number = func(b []byte) float32 { return half.FromBFloat16(binary.LittleEndian.Uint16(b)) }
	default:
		return fmt.Errorf("tensor %q holds %s, which is not float32, float64, float16 or bfloat16", t.Name, t.DType)
	}
	for i := range dst {
		dst[i] = number(t.Data[i*size:])
	}
	return nil
}
