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

// Options configure a Dir. The zero value reads, and saves without a fence and keeps every checkpoint.
type Options struct {
	FS    vfs.FS // nil: the operating system's
	Codec string // "", "auto": byte planes if they help; "zstd": only zstd; "none"
	Keep  Policy // which of this run's checkpoints stay after a save; the zero value keeps all
	Run   string // the run's name, recorded; checkpoints of other runs are never removed
	// Attempt is the number of the attempt that saves, which is recorded. 0 stands for a tool, or a program
	// without attempts, which removes what the policy says whichever attempt wrote it.
	Attempt int
	// Fence returns an error once a newer attempt has begun. It is called before every draft,
	// commit and removal, and must be safe for concurrent use.
	Fence   func() error
	Workers int          // goroutines that encode or decode; 0: as many as GOMAXPROCS
	Log     *slog.Logger // nil: silent
}

// Dir is a run's checkpoints folder. Its methods are safe for concurrent use; commits and
// removals wait for each other.
type Dir struct {
	path    string
	fs      vfs.FS
	codec   chunk.Codec
	workers int
	run     uint32 // identifies the run in file names
	opt     Options
	log     *slog.Logger

	now     func() time.Time
	nonce   func() uint32
	sleep   func(context.Context, time.Duration) error
	program string

	changing sync.Mutex // held while something is committed or removed
	gateMade bool       // this attempt's gate exists; guarded by changing

	cache manifestCache

	mu     sync.Mutex
	made   bool                // the folder itself exists, durably
	bad    map[saveID]error    // found corrupt, so not kept as good ones; with an error: rejected, so not the latest either
	drafts map[string]struct{} // folders that this process is writing
	warned map[string]struct{} // what warnOnce has logged
}

// Open returns the checkpoints folder at path. It does not access the disk: the first save creates the
// folder, and until then Latest returns ErrNone.
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
		return nil, fmt.Errorf("workers must be 0 (as many as GOMAXPROCS) or more, got %d", o.Workers)
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

// SetWorkers changes Options.Workers, for callers that learn the number only after Open. d must not be in use meanwhile.
func (d *Dir) SetWorkers(n int) { d.workers = max(1, n) }

// Location is what rank 0 sends to the other ranks, as JSON, so that they open the same folder for the
// same attempt.
type Location struct {
	Path    string `json:"path"`
	Run     string `json:"run"`
	Attempt int    `json:"attempt"`
	Codec   string `json:"codec"`
}

// Location returns where d saves, and for which run and attempt.
func (d *Dir) Location() Location {
	return Location{Path: d.path, Run: d.opt.Run, Attempt: d.opt.Attempt, Codec: d.opt.Codec}
}

// OpenLocation opens the folder of another rank. Run, attempt and codec come from p, everything else
// from o. A rank that does not commit needs neither a fence nor a policy.
func OpenLocation(p Location, o Options) (*Dir, error) {
	o.Run, o.Attempt, o.Codec = p.Run, p.Attempt, p.Codec
	return Open(p.Path, o)
}

// fence returns ErrFenced if this attempt may no longer commit or remove.
func (d *Dir) fence() error {
	if d.opt.Fence == nil {
		return nil
	}
	if err := d.opt.Fence(); err != nil {
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	return nil
}

// mayRemove reports whether this attempt may remove what the given attempt wrote.
func (d *Dir) mayRemove(attempt int) bool { return d.opt.Attempt == 0 || attempt <= d.opt.Attempt }

// remove deletes a file, under the fence. It succeeds if the file does not exist.
func (d *Dir) remove(path string) error {
	if err := d.fence(); err != nil {
		return err
	}
	if err := d.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeDir deletes an empty folder, under the fence. It succeeds if the folder does not exist, or if
// somebody has put something into it.
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

// makeRoot creates the checkpoints folder, once.
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

// tag returns a new tag for the file names of one save.
func (d *Dir) tag() manifest.Tag {
	return manifest.Tag{Attempt: d.opt.Attempt, Run: d.run, Nonce: d.nonce()}
}

// program returns the name and version of this build, for the manifest.
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

// warnOnce logs a problem with something that is skipped and left as it is, the first time that this Dir finds it. Otherwise every save
// would log it again.
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
