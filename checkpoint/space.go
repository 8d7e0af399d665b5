package checkpoint

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"

	"ddpbatch/internal/replace"
)

// Space is what Probe finds out about a file system. Free is only a hint: quotas, and single
// servers of a parallel file system, fill up earlier.
type Space struct {
	Type  string `json:"type"` // "ext4", "nfs", "lustre", ...; empty if unknown
	Free  uint64 `json:"free"` // bytes
	Total uint64 `json:"total"`
}

// Probe does with a small file in the checkpoints folder all that a save will do: create, write,
// sync, rename, sync of the folder. Then it reads the file back and removes it. So a fault that would
// fail the first save is found before training. name appears in errors as who tried, for example a host.
// Probe creates the folder if it does not exist.
func (d *Dir) Probe(ctx context.Context, name string) (_ Space, err error) {
	defer explain(&err, "%s cannot save in %s", name, d.path)
	if err := ctx.Err(); err != nil {
		return Space{}, err
	}
	if err := d.makeRoot(); err != nil {
		return Space{}, err
	}
	tmp, probe := d.tag().ProbeName(), d.tag().ProbeName()
	path := filepath.Join(d.path, probe)
	content := []byte(tmp + "\n" + probe + "\n")
	o := replace.Options{Temp: tmp, Size: int64(len(content)), New: true, BeforeRename: ctx.Err}
	if _, err := d.writeFile(ctx, path, false, o, replace.Bytes(content)); err != nil {
		return Space{}, err
	}
	got, err := d.readFile(path, int64(len(content)))
	if err == nil && !bytes.Equal(got, content) {
		err = errors.New("the file reads back other bytes than were written")
	}
	// Not under the fence: no other process knows the file.
	if removing := d.fs.Remove(path); !errors.Is(removing, fs.ErrNotExist) { // an earlier reply may have been lost
		err = errors.Join(err, removing)
	}
	if err != nil {
		return Space{}, err
	}
	if err := d.fs.SyncDir(d.path); err != nil {
		return Space{}, err
	}
	space, err := d.fs.Space(d.path)
	if err != nil { // the space is only a hint
		d.log.Debug("free space for checkpoints is unknown", "path", d.path, "err", err)
		return Space{}, nil
	}
	return Space(space), nil
}

// Room is what a run's checkpoints will take on disk, as far as that is known before it trains.
type Room struct {
	Each  int64 // bytes of one: of the newest existing one if its state has this size, else of the state, which is the maximum
	Count int   // how many exist at once, including the one that is being saved
	More  bool  // rules will keep others in addition, whose number is unknown
	There int64 // bytes of existing ones that are removed as newer ones are saved
	Need  int64 // bytes that must be free: Each × Count − There, and always enough for one more checkpoint
}

// Room returns the space that checkpoints of a state of this many bytes need under Options.Keep. deltas says that some will be deltas,
// which keep their base. It reads the manifests of existing checkpoints, and no data.
func (d *Dir) Room(ctx context.Context, state int64, deltas bool) (Room, error) {
	v, err := d.look(ctx, false)
	if err != nil {
		return Room{}, fmt.Errorf("look up the sizes of the checkpoints in %s: %w", d.path, classify(err))
	}
	k := d.opt.Keep
	// A new one is durable before the oldest is removed. If no rule is set, all stay: then at least the next two must fit.
	r := Room{Each: state, Count: satAdd(max(k.Last, 1), satAdd(k.Best, 1)), More: k == Policy{} || k.Every > 0 || k.Within > 0}
	if deltas {
		r.Count = satAdd(r.Count, 1)
	}
	left := r.Count - 1
	for i := len(v.folders) - 1; i >= 0; i-- {
		e := v.folders[i]
		if e.m == nil || e.m.Run != d.opt.Run || !e.info.Committed {
			continue
		}
		if r.Each == state && e.info.RawBytes == state && e.info.BaseStep < 0 {
			r.Each = e.info.Bytes
		}
		if left > 0 && k != (Policy{}) && len(e.info.Pinned) == 0 {
			left--
			r.There += e.info.Bytes
		}
	}
	r.Need = math.MaxInt64
	if r.Each == 0 || int64(r.Count) <= math.MaxInt64/r.Each {
		r.Need = max(r.Each*int64(r.Count)-r.There, r.Each)
	}
	return r, nil
}

// satAdd returns a + b of numbers that are not negative, or the largest int if that is less.
func satAdd(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}
