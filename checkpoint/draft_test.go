package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/testkit/vfstest"
	"ddpbatch/internal/vfs"
)

// split saves a state with n writers. Each writer has its own Dir, as ranks do. split divides every tensor between whole elements into n
// parts. base is the state of the Commit's Base, or nil if the Commit has no Base.
func split(t testing.TB, d *Dir, s *State, n int, base *State, c Commit) (*Checkpoint, error) {
	t.Helper()
	dr, err := d.NewDraft(t.Context(), s.Step)
	must(t, err)
	defer dr.Abort()
	c.World, c.Values, c.Metrics, c.Shards = s.World, s.Values, s.Metrics, make([]ShardInfo, n)
	pieces := make([][]Piece, n)
	offsets := make([]int64, n)
	for k, tensor := range s.Tensors {
		plan := TensorPlan{Name: tensor.Name, DType: tensor.DType, Shape: tensor.Shape}
		elem, _ := manifest.ElemSize(tensor.DType)
		count := len(tensor.Data) / elem
		for i := range n {
			from, to := elem*(count*i/n), elem*(count*(i+1)/n)
			if from == to {
				continue
			}
			p := Piece{Tensor: tensor.Name, DType: tensor.DType, Shape: tensor.Shape, Start: int64(from), Data: tensor.Data[from:to]}
			if base != nil {
				p.Base = base.Tensors[k].Data[from:to]
			}
			pieces[i] = append(pieces[i], p)
			plan.Extents = append(plan.Extents, Extent{Shard: i, Offset: offsets[i], Start: p.Start, Length: int64(to - from)})
			offsets[i] += int64(to - from)
		}
		c.Tensors = append(c.Tensors, plan)
	}
	for i := range n {
		writer := dr
		if i > 0 {
			other, err := OpenLocation(d.Location(), Options{FS: d.fs})
			must(t, err)
			writer, err = other.JoinDraft(dr.Ticket())
			must(t, err)
		}
		c.Shards[i], err = writer.WriteShard(t.Context(), i, n, pieces[i])
		must(t, err)
	}
	return dr.Commit(t.Context(), c)
}

// all reads a whole checkpoint.
func all(t testing.TB, c *Checkpoint) *State {
	t.Helper()
	s, err := c.load(context.Background())
	must(t, err)
	return s
}

func TestShardsOfManyWritersMakeOneCheckpoint(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 3, 8, maxOpen + 3} { // the last has more shards than stay open at a time
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			d := openDir(t, Options{FS: vfstest.New(t), Run: "r", Attempt: 1})
			want := testState(5, 0)
			c, err := split(t, d, want, n, nil, Commit{})
			must(t, err)
			wantState(t, all(t, c), want)
			must(t, c.Verify(t.Context()))
			must(t, c.Close())
			s, info, err := d.Latest(t.Context())
			must(t, err)
			wantState(t, s, want)
			if info.RawBytes != 3208 || info.World != 4 {
				t.Errorf("described as %+v", info)
			}
		})
	}
}

// Every rank used to write a shard, even if it had no bytes. A checkpoint with such shards counts, can be read, and can be the base of a
// delta.
func TestShardsWithoutBytesCount(t *testing.T) {
	t.Parallel()
	d := openDir(t, Options{FS: vfstest.New(t), Run: "r", Attempt: 1})
	tiny := func(step int64) *State {
		return &State{Step: step, World: 64,
			Tensors: []Tensor{{Name: "w", DType: "float32", Shape: []int{5}, Data: bytes.Repeat([]byte{byte(step)}, 20)}}}
	}
	full, err := split(t, d, tiny(1), 64, nil, Commit{})
	must(t, err)
	defer full.Close()
	delta, err := split(t, d, tiny(2), 64, tiny(1), Commit{Base: full})
	must(t, err)
	must(t, errors.Join(delta.Verify(t.Context()), delta.Close()))
	for step := int64(1); step <= 2; step++ {
		c, err := d.Find(t.Context(), step)
		must(t, err)
		wantState(t, all(t, c), tiny(step))
		must(t, errors.Join(c.Verify(t.Context()), c.Close()))
	}
	wantList(t, d, "1 committed, 2 committed")
	found, err := d.FindForResume(t.Context())
	must(t, err)
	if found.Step() != 2 || found.World() != 64 {
		t.Errorf("resumes from step %d of %d ranks", found.Step(), found.World())
	}
	must(t, found.Close())
}

// The Abort of rank 0 removes what all ranks have written.
func TestAbortLeavesNothing(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m, Attempt: 1})
	dr, err := d.NewDraft(t.Context(), 1)
	must(t, err)
	other, err := d.JoinDraft(dr.Ticket())
	must(t, err)
	piece := []Piece{{Tensor: "x", DType: "uint8", Shape: []int{2}, Data: []byte{1, 2}}}
	for i, writer := range []*Draft{dr, other} {
		_, err := writer.WriteShard(t.Context(), i, 2, piece)
		must(t, err)
	}
	dr.Abort()
	if files := tree(t, m); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
	if _, err := dr.Commit(t.Context(), Commit{}); err == nil {
		t.Error("a draft that was given up is committed")
	}
	if _, err := dr.WriteShard(t.Context(), 0, 1, piece); err == nil {
		t.Error("a draft that was given up is written")
	}
}

// The Abort of a joined draft removes only the shard that its rank could not finish, since the others may be committed.
func TestAbortOfAJoinedDraftSparesWholeShards(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := attempt(t, m, 1, Policy{})
	s := testState(100, 0)
	dr, err := d.NewDraft(t.Context(), 100)
	must(t, err)
	joined, err := attempt(t, m, 1, Policy{}).JoinDraft(dr.Ticket())
	must(t, err)
	c := s.commit()
	c.Shards = make([]ShardInfo, 1)
	c.Shards[0], err = joined.WriteShard(t.Context(), 0, 1, s.pieces())
	must(t, err)
	_, err = dr.Commit(t.Context(), c)
	must(t, err)
	joined.Abort()
	must(t, VerifyStep(t.Context(), d, 100))

	dr, err = d.NewDraft(t.Context(), 200)
	must(t, err)
	defer dr.Abort()
	in := vfstest.NewInjector(m, func(_ int, op vfstest.Op) vfstest.Fault {
		if op.Kind == "syncdir" { // after the shard's rename
			return vfstest.Fault{Err: syscall.EIO}
		}
		return vfstest.Fault{}
	})
	joined, err = attempt(t, in, 1, Policy{}).JoinDraft(dr.Ticket())
	must(t, err)
	_, err = joined.WriteShard(t.Context(), 0, 1, s.pieces())
	wantErr(t, "WriteShard", err, syscall.EIO)
	joined.Abort()
	if files := walk(t, m, dr.path()); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
}

func TestBadTicketIsRefused(t *testing.T) {
	t.Parallel()
	d := openDir(t, Options{FS: vfstest.New(t), Attempt: 2})
	good := `{"folder":"step-000000000007.2-0000000a","step":7,"attempt":2,"nonce":10}`
	if _, err := d.JoinDraft([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"no JSON":         good[1:],
		"path":            strings.Replace(good, "step-000000000007", "../step-000000000007", 1),
		"other step":      strings.Replace(good, `"step":7`, `"step":8`, 1),
		"broken":          strings.Replace(good, "0000000a", "0000000a.broken", 1),
		"other attempt":   strings.Replace(good, `"attempt":2`, `"attempt":3`, 1),
		"folder's":        strings.Replace(good, "7.2-", "7.1-", 1),
		"nonce too large": strings.Replace(good, `"nonce":10`, `"nonce":4294967296`, 1),
	} {
		if _, err := d.JoinDraft([]byte(bad)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestWriteShardRefusesBadPieces(t *testing.T) {
	t.Parallel()
	good := Piece{Tensor: "x", DType: "float32", Shape: []int{4}, Start: 4, Data: make([]byte, 8)}
	for name, spoil := range map[string]func(p *Piece){
		"dtype":       func(p *Piece) { p.DType = "float128" },
		"no bytes":    func(p *Piece) { p.Data = nil },
		"negative":    func(p *Piece) { p.Start = -4 },
		"too long":    func(p *Piece) { p.Start = 12 },
		"half a one":  func(p *Piece) { p.Start = 2 },
		"half length": func(p *Piece) { p.Data = make([]byte, 6) },
		"base":        func(p *Piece) { p.Base = make([]byte, 4) },
	} {
		m := vfstest.New(t)
		dr, err := openDir(t, Options{FS: m}).NewDraft(t.Context(), 1)
		must(t, err)
		p := good
		spoil(&p)
		if _, err := dr.WriteShard(t.Context(), 0, 1, []Piece{p}); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := dr.WriteShard(t.Context(), 2, 2, []Piece{good}); err == nil {
			t.Error("shard 2 of 2: no error")
		}
		dr.Abort()
		if files := tree(t, m); len(files) != 0 {
			t.Errorf("%s: left behind: %v", name, files)
		}
	}
}

// late is a client that sees the names of files only after some lookups. left is the number of failed lookups to come, by part of a name.
type late struct {
	vfs.FS
	left map[string]int
}

func (l *late) hide(name string) error {
	for part := range l.left {
		if strings.Contains(name, part) && l.left[part] > 0 {
			l.left[part]--
			return syscall.ENOENT
		}
	}
	return nil
}

func (l *late) Open(name string) (vfs.File, error) {
	if err := l.hide(name); err != nil {
		return nil, err
	}
	return l.FS.Open(name)
}

func (l *late) Create(name string) (vfs.File, error) {
	if err := l.hide(name); err != nil {
		return nil, err
	}
	return l.FS.Create(name)
}

// If another rank's message says that a file exists, the package waits for the file, for a bounded time and with growing pauses.
func TestAnnouncedFilesAreWaitedFor(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	zero := openDir(t, Options{FS: m, Attempt: 1})
	save(t, zero, testState(1, 0))
	found, err := zero.FindLatest(t.Context())
	must(t, err)
	for _, hidden := range []int{0, 3, tries - 1, tries} {
		other := openDir(t, Options{FS: &late{m, map[string]int{"shard-": hidden}}, Attempt: 1})
		var waited time.Duration
		other.sleep = func(_ context.Context, d time.Duration) error { waited += d; return nil }
		c, err := other.OpenManifest(found.Folder(), found.Manifest())
		must(t, err)
		err = c.Verify(t.Context())
		if ok := hidden < tries; ok != (err == nil) || (hidden > 0) != (waited > 0) || waited > 20*time.Second {
			t.Errorf("hidden %d times: error %v after waiting %v", hidden, err, waited)
		}
		if hidden >= tries {
			wantErr(t, "Verify", err, ErrStale) // because the folder lists the shard
		}
	}
	dr, err := zero.NewDraft(t.Context(), 2)
	must(t, err)
	defer dr.Abort()
	joined, err := openDir(t, Options{FS: &late{m, map[string]int{"shard-": 3}}, Attempt: 1}).JoinDraft(dr.Ticket())
	must(t, err)
	_, err = joined.WriteShard(t.Context(), 0, 1, nil)
	must(t, err)
}

func TestCopyShardCopiesAllOrNothing(t *testing.T) {
	t.Parallel()
	m := vfstest.New(t)
	d := openDir(t, Options{FS: m, Attempt: 1})
	s := testState(1, 0)
	save(t, d, s)
	original := find(t, m, d.stepPath(1), "shard-")
	for _, damage := range []bool{true, false} {
		dr, err := d.NewDraft(t.Context(), 1)
		must(t, err)
		data := vfstest.Read(t, m, original)
		c := s.commit()
		info := ShardInfo{Size: int64(len(data)), Raw: 3208, CRC: uint32(manifest.CRC(data))}
		if damage {
			data = flip(data, 999)
		}
		c.Shards = make([]ShardInfo, 1)
		c.Shards[0], err = dr.CopyShard(t.Context(), 0, 1, strings.NewReader(string(data)), info)
		if damage {
			if err == nil || errors.Is(err, ErrCorrupt) {
				t.Errorf("a damaged original: %v", err)
			}
			dr.Abort()
			continue
		}
		must(t, err)
		committed, err := dr.Commit(t.Context(), c)
		must(t, err)
		wantState(t, all(t, committed), s)
	}
}

func TestSecondSaveCountsWithTheClockSetBack(t *testing.T) {
	t.Parallel()
	d := openDir(t, Options{FS: vfstest.New(t), Keep: Policy{Last: 2}, Attempt: 1})
	d.nonce = func() uint32 { return 7 } // so that the name of the folder does not decide either
	at := d.now()
	for variant := range 4 {
		d.now = func() time.Time { return at.Add(-time.Duration(variant) * time.Hour) }
		n := uint32(100 - variant)
		d.nonce = func() uint32 { return n }
		save(t, d, testState(1, variant))
		s, _, err := d.Latest(t.Context())
		must(t, err)
		wantState(t, s, testState(1, variant))
	}
	wantList(t, d, "1 committed")
}

// FuzzTicket checks that no ticket takes a writer out of the checkpoints folder or into the folder of another attempt.
func FuzzTicket(f *testing.F) {
	f.Add([]byte(`{"folder":"step-000000000007","step":7,"attempt":2,"nonce":10}`))
	f.Add([]byte(`{"folder":"step-000000000007.2-0000000a","step":7,"attempt":2,"nonce":10}`))
	f.Add([]byte(`{"folder":"../x","step":7}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		dr, err := openDir(t, Options{FS: vfstest.New(t), Attempt: 2}).JoinDraft(data)
		if err != nil {
			return
		}
		if filepath.Dir(dr.path()) != testPath || strings.Contains(dr.path(), "broken") || dr.tag.Attempt != 2 {
			t.Errorf("it leads to %s, as %v", dr.path(), dr.tag)
		}
	})
}

// FuzzManifestOfAnotherRank checks that OpenManifest either opens the bytes of a message or returns an error. If it opens them, Tensors
// describes the tensors, and reading data fails because the files do not exist.
func FuzzManifestOfAnotherRank(f *testing.F) {
	m := vfstest.New(f)
	d := openDir(f, Options{FS: m})
	save(f, d, testState(1, 0))
	f.Add(vfstest.Read(f, m, d.stepPath(1)+"/"+manifest.Name))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := openDir(t, Options{FS: vfstest.New(t)}).OpenManifest("step-000000000001", data)
		if err != nil {
			return
		}
		for _, tensor := range c.Tensors() {
			if tensor.Bytes == 0 {
				continue
			}
			if err := c.Read(t.Context(), []Target{{Name: tensor.Name, Data: make([]byte, 1)}}); err == nil {
				t.Error("read from nowhere")
			}
		}
	})
}
