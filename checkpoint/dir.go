package checkpoint

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"runtime/debug"
	"sync"
	"time"
	"unicode/utf8"

	"ddpbatch/internal/vfs"
)

// minKeep is the smallest retention: with one, a corrupt checkpoint has nothing before it.
const minKeep = 2

// maxAttempt is what a file name holds.
const maxAttempt = 999_999_999

// Options say how a Dir works. The zero value reads, and saves without a fence, keeping all.
type Options struct {
	FS    vfs.FS // nil: the operating system's
	Codec string // "", "auto" and "zstd": zstd where it helps; "none"
	// KeepLast is how many of this run's checkpoints stay after a save, at least 2; 0 keeps all.
	KeepLast int
	Run      string // the run's name, recorded; checkpoints of other runs are never removed
	Attempt  int    // the attempt that saves, recorded
	// Fence returns an error when a newer attempt has begun; it is asked before every
	// commit and every removal.
	Fence func() error
	Log   *slog.Logger // nil: silent
}

// Dir is a run's checkpoints folder. Its methods may be called by several goroutines; saves wait
// for each other.
type Dir struct {
	path  string
	fs    vfs.FS
	codec string
	run   uint32 // stands for the run in file names
	opt   Options
	log   *slog.Logger

	now     func() time.Time
	nonce   func() uint32
	program string

	saving sync.Mutex
	made   bool // the folder itself is there, durably; guarded by saving

	mu     sync.Mutex
	bad    map[int64]bool // steps that Latest found corrupt; they do not count for retention
	pinned int64          // the step of a checkpoint that stays; -1: none
}

// Open returns the checkpoints folder at path. It touches nothing: the folder is made by the
// first Save, and its absence is ErrNone to Latest.
func Open(path string, o Options) (*Dir, error) {
	codec, err := parseCodec(o.Codec)
	if err != nil {
		return nil, err
	}
	if o.KeepLast != 0 && o.KeepLast < minKeep {
		return nil, fmt.Errorf("keep_last is %d: must be at least %d, or 0 to keep all", o.KeepLast, minKeep)
	}
	if o.Attempt < 0 || o.Attempt > maxAttempt {
		return nil, fmt.Errorf("attempt %d is not within 0 to %d", o.Attempt, maxAttempt)
	}
	if len(o.Run) > maxName || !utf8.ValidString(o.Run) {
		return nil, fmt.Errorf("run name %q is not up to %d bytes of UTF-8", o.Run, maxName)
	}
	d := &Dir{
		path: filepath.Clean(path), fs: o.FS, codec: codec, run: crc32.Checksum([]byte(o.Run), castagnoli), opt: o, log: o.Log,
		now: time.Now, nonce: rand.Uint32, program: program(), bad: map[int64]bool{}, pinned: -1,
	}
	if d.fs == nil {
		d.fs = vfs.OS{}
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	return d, nil
}

// fence asks whether this attempt may still commit and remove.
func (d *Dir) fence() error {
	if d.opt.Fence == nil {
		return nil
	}
	if err := d.opt.Fence(); err != nil {
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	return nil
}

// remove deletes a file, under the fence. One that is gone already is no error.
func (d *Dir) remove(path string) error {
	if err := d.fence(); err != nil {
		return err
	}
	if err := d.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeStepDir deletes the folder of a step, under the fence, unless somebody has put something
// else into it.
func (d *Dir) removeStepDir(step int64) error {
	if err := d.fence(); err != nil {
		return err
	}
	err := d.fs.RemoveDir(d.stepPath(step))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) { // gone, or not empty
		return nil
	}
	return err
}

// tag names the files of one save.
func (d *Dir) tag() tag { return tag{attempt: d.opt.Attempt, run: d.run, nonce: d.nonce()} }

func (d *Dir) stepPath(step int64) string { return filepath.Join(d.path, stepName(step)) }

// Pin keeps the checkpoint of a step, which may be there already or not, whatever KeepLast says and without counting for it. The one that was pinned before
// is an ordinary one again.
func (d *Dir) Pin(step int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pinned = step
}

func (d *Dir) isPinned(step int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pinned == step
}

func (d *Dir) markBad(step int64, bad bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if bad {
		d.bad[step] = true
	} else {
		delete(d.bad, step)
	}
}

func (d *Dir) isBad(step int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bad[step]
}

// program names this build, for the manifest.
func program() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "ddpbatch"
	}
	version := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (version == "" || version == "(devel)") {
			version = s.Value
		}
	}
	if version == "" {
		return "ddpbatch"
	}
	return "ddpbatch " + version
}
