package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"ddpbatch/checkpoint/internal/manifest"
)

// Draft is a checkpoint that is being written, by one rank or by several: rank 0 creates it
// (NewDraft) and sends its Ticket to the others, which join it (JoinDraft). All write their shards
// (WriteShard) and report them to rank 0, which commits the draft. Its methods are safe for concurrent use.
type Draft struct {
	d      *Dir
	folder string
	tag    manifest.Tag
	step   int64
	owner  bool // created by NewDraft, on rank 0

	mu        sync.Mutex
	shards    []string // files that this writer has begun; those of a joined draft only until they are durable
	finalized bool     // committed, or perhaps committed: nothing may be removed
	claimed   bool     // the folder is in Dir.drafts
}

// maxFolders is how many names NewDraft tries. All but the first are random.
const maxFolders = 8

// NewDraft creates a new folder for a save, durably, after asking the fence. It never writes into a
// folder that exists already, whoever made it. Like Commit it returns ErrFenced if a later attempt has
// superseded the save, but before anything is written.
func (d *Dir) NewDraft(ctx context.Context, step int64) (dr *Draft, err error) {
	defer explain(&err, "begin checkpoint of step %d in %s", step, d.path)
	if step < 0 || step > maxStep {
		return nil, fmt.Errorf("the step must be 0 to %d", int64(maxStep))
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := d.fence(); err != nil {
		return nil, err
	}
	if err := d.makeRoot(); err != nil {
		return nil, err
	}
	dr = &Draft{d: d, tag: d.tag(), step: step, owner: true}
	if err := dr.stillCounts(ctx); err != nil {
		return nil, err
	}
	if _, err := dr.laterThanOthers(ctx, d.now()); err != nil {
		return nil, err
	}
	dr.folder = manifest.StepFolder(step)
	err = dr.mkdir()
	for try := 1; errors.Is(err, fs.ErrExist) && try < maxFolders; try++ {
		dr.folder = manifest.FreshFolder(step, dr.tag.Attempt, d.nonce())
		err = dr.mkdir()
	}
	if err != nil {
		return nil, err
	}
	if err := d.fs.SyncDir(d.path); err != nil {
		dr.Abort()
		return nil, err
	}
	return dr, nil
}

// mkdir creates the folder. It claims the folder first, so that a concurrent sweep does not remove it
// as left behind.
func (dr *Draft) mkdir() error {
	if !dr.d.claim(dr.folder) {
		return fs.ErrExist
	}
	dr.claimed = true
	err := dr.d.fs.Mkdir(dr.path())
	if err != nil {
		dr.release()
	}
	return err
}

// release undoes the claim of mkdir. It does so only once, because another draft may claim the name
// afterward.
func (dr *Draft) release() {
	dr.mu.Lock()
	defer dr.mu.Unlock()
	if dr.claimed {
		dr.claimed = false
		dr.d.mu.Lock()
		defer dr.d.mu.Unlock()
		delete(dr.d.drafts, dr.folder)
	}
}

// claim records that this process is writing a folder. It returns false if that is recorded already.
func (d *Dir) claim(folder string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, taken := d.drafts[folder]; taken {
		return false
	}
	d.drafts[folder] = struct{}{}
	return true
}

func (d *Dir) isWriting(folder string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, writing := d.drafts[folder]
	return writing
}

func (dr *Draft) path() string { return filepath.Join(dr.d.path, dr.folder) }

// ticket is the JSON form of Ticket.
type ticket struct {
	Folder  string `json:"folder"`
	Step    int64  `json:"step"`
	Attempt int    `json:"attempt"` // Attempt and Nonce are those of the tag in the file names
	Nonce   uint32 `json:"nonce"`
}

// Ticket returns what other ranks pass to JoinDraft.
func (dr *Draft) Ticket() []byte {
	data, err := json.Marshal(ticket{dr.folder, dr.step, dr.tag.Attempt, dr.tag.Nonce})
	if err != nil {
		panic("checkpoint: encode a ticket: " + err.Error())
	}
	return data
}

// JoinDraft takes part in a draft that another process created; data is its Ticket. Both must be of the
// same run and attempt.
func (d *Dir) JoinDraft(data []byte) (*Draft, error) {
	var t ticket
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, fmt.Errorf("join a checkpoint: parse the ticket: %w", err)
	}
	folder, ok := manifest.ParseFolder(t.Folder)
	if !ok || folder.Broken || folder.Step != t.Step {
		return nil, fmt.Errorf("join a checkpoint: the ticket names the folder %q for step %d", t.Folder, t.Step)
	}
	if t.Attempt != d.opt.Attempt || folder.Fresh && folder.Attempt != t.Attempt {
		return nil, fmt.Errorf("join a checkpoint: the ticket is of attempt %d, this is attempt %d", t.Attempt, d.opt.Attempt)
	}
	tag := manifest.Tag{Attempt: t.Attempt, Run: d.run, Nonce: t.Nonce}
	return &Draft{d: d, folder: t.Folder, tag: tag, step: t.Step}, nil
}

// Abort removes what this writer has begun and not finished. On rank 0 it removes all shards of the
// draft and then the folder, so it must be called after the other ranks have stopped writing. It does
// nothing after a commit, nor after one that failed so late that it may have happened. What cannot
// be removed is left to the next attempt's retention.
func (dr *Draft) Abort() {
	dr.mu.Lock()
	finalized, names := dr.finalized, dr.shards
	dr.finalized, dr.shards = true, nil
	dr.mu.Unlock()
	defer dr.release()
	if finalized {
		return
	}
	if dr.owner {
		names = append(names, dr.strays()...)
	}
	for _, name := range names {
		dr.d.discard(filepath.Join(dr.path(), name))
	}
	if !dr.owner {
		return
	}
	if err := dr.d.removeDir(dr.path()); err != nil {
		dr.d.log.Warn("the folder of an unfinished save cannot be removed", "path", dr.path(), "err", err)
	}
}

// strays returns the files of this draft that other ranks have left.
func (dr *Draft) strays() []string {
	entries, err := dr.d.fs.ReadDir(dr.path())
	if err != nil {
		return nil // the removal of the folder reports the error
	}
	var names []string
	for _, entry := range entries {
		if tag, ok := manifest.ParseTag(entry.Name()); ok && tag == dr.tag {
			names = append(names, entry.Name())
		}
	}
	return names
}
