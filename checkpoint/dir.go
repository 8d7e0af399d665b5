package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
	"unicode/utf8"

	"ddpbatch/checkpoint/internal/chunk"
	"ddpbatch/checkpoint/internal/manifest"
	"ddpbatch/internal/pause"
	"ddpbatch/internal/replace"
	"ddpbatch/internal/vfs"
)

// Options say how a Dir works. The zero value reads, and saves without a fence, keeping all.
type Options struct {
	FS    vfs.FS // nil: the operating system's
	Codec string // "", "auto": byte planes where they help; "zstd": only zstd; "none"
	Keep  Policy // which of this run's checkpoints stay after a save; the zero value keeps all
	Run   string // the run's name, recorded; checkpoints of other runs are never removed
	// Attempt is the attempt of the run that saves, recorded. 0 is none: a tool, or a program
	// without attempts, which removes what the policy says whatever attempt wrote it.
	Attempt int
	// Fence returns an error when a newer attempt has begun; it is asked before every draft,
	// commit and removal. It must be safe for several goroutines.
	Fence   func() error
	Workers int          // goroutines that encode or decode; 0: GOMAXPROCS
	Log     *slog.Logger // nil: silent
}

// Dir is a run's checkpoints folder. Its methods may be called by several goroutines; commits and
// removals wait for each other.
type Dir struct {
	path    string
	fs      vfs.FS
	codec   chunk.Codec
	workers int
	run     uint32 // stands for the run in file names
	opt     Options
	log     *slog.Logger

	now     func() time.Time
	nonce   func() uint32
	sleep   func(context.Context, time.Duration) error
	program string

	changing sync.Mutex // held while something is committed or removed
	gateMade bool       // this attempt's gate is there; under changing

	cache manifestCache

	mu     sync.Mutex
	made   bool                // the folder itself is there, durably
	bad    map[saveID]error    // found corrupt: they do not count for retention; where an error says why, rejected: nor as the latest
	drafts map[string]struct{} // folders that are being written by this process
	warned map[string]struct{} // what warnOnce has said
}

// Open returns the checkpoints folder at path. It touches nothing: the folder is made by the
// first save, and its absence is ErrNone to Latest.
func Open(path string, o Options) (*Dir, error) {
	codec, err := chunk.ParseCodec(o.Codec)
	if err != nil {
		return nil, err
	}
	if err := o.Keep.Validate(); err != nil {
		return nil, err
	}
	if o.Attempt < 0 || o.Attempt > manifest.MaxAttempt {
		return nil, fmt.Errorf("attempt %d is not within 0 to %d", o.Attempt, manifest.MaxAttempt)
	}
	if len(o.Run) > maxName || !utf8.ValidString(o.Run) {
		return nil, fmt.Errorf("run name %q is not up to %d bytes of UTF-8", o.Run, maxName)
	}
	if o.Workers < 0 {
		return nil, fmt.Errorf("%d workers", o.Workers)
	}
	d := &Dir{
		path: filepath.Clean(path), fs: o.FS, codec: codec, workers: o.Workers, opt: o, log: o.Log,
		run: runCRC(o.Run),
		now: time.Now, nonce: rand.Uint32, sleep: pause.For, program: program(),
		cache: manifestCache{manifests: map[string]*cachedManifest{}, records: map[string]manifest.Record{}},
		bad:   map[saveID]error{}, drafts: map[string]struct{}{}, warned: map[string]struct{}{},
	}
	if d.fs == nil {
		d.fs = vfs.OS{}
	}
	if d.workers == 0 {
		d.workers = runtime.GOMAXPROCS(0)
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	return d, nil
}

// SetWorkers changes Options.Workers, for who knows only after Open how many goroutines have room. Nobody may be using d meanwhile.
func (d *Dir) SetWorkers(n int) { d.workers = max(1, n) }

// Location is what rank 0 tells the other ranks, as JSON, so that they open the same folder for the
// same attempt.
type Location struct {
	Path    string `json:"path"`
	Run     string `json:"run"`
	Attempt int    `json:"attempt"`
	Codec   string `json:"codec"`
}

// Location is where d saves, and as whom.
func (d *Dir) Location() Location {
	return Location{Path: d.path, Run: d.opt.Run, Attempt: d.opt.Attempt, Codec: d.opt.Codec}
}

// OpenLocation opens the folder of another rank. Run, attempt and codec are the location's, all else is
// from o. A rank that does not commit needs no fence and no policy.
func OpenLocation(p Location, o Options) (*Dir, error) {
	o.Run, o.Attempt, o.Codec = p.Run, p.Attempt, p.Codec
	return Open(p.Path, o)
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

// mayRemove says whether what an attempt wrote is this one's to remove.
func (d *Dir) mayRemove(attempt int) bool { return d.opt.Attempt == 0 || attempt <= d.opt.Attempt }

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

// removeDir deletes an empty folder, under the fence. One that is gone, or into which somebody
// has put something else, is no error.
func (d *Dir) removeDir(path string) error {
	if err := d.fence(); err != nil {
		return err
	}
	err := d.fs.RemoveDir(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// makeRoot makes the checkpoints folder, once.
func (d *Dir) makeRoot() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.made {
		return nil
	}
	if err := replace.Dir(d.fs, d.path); err != nil {
		return err
	}
	d.made = true
	return nil
}

// tag names the files of one save.
func (d *Dir) tag() manifest.Tag {
	return manifest.Tag{Attempt: d.opt.Attempt, Run: d.run, Nonce: d.nonce()}
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

// warnOnce says what is wrong with something that is passed over and stays as it is, the first time that this Dir comes by it: the look
// after each save would say it again.
func (d *Dir) warnOnce(message string, args ...any) {
	key := fmt.Sprint(append([]any{message}, args...)...)
	d.mu.Lock()
	_, said := d.warned[key]
	d.warned[key] = struct{}{}
	d.mu.Unlock()
	if !said {
		d.log.Warn(message, args...)
	}
}
