package manifest

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

// Record says from which checkpoint an attempt of a run resumed. Rank 0 of the attempt writes it
// before training begins, beside the checkpoints. Only that attempt may write it again, and only
// with an earlier step: what was superseded stays superseded.
type Record struct {
	Run           string
	Attempt       int    // 1 to MaxAttempt
	ResumedStep   int64  // -1: it began without a checkpoint
	ResumedFolder string // of that checkpoint; empty if it began without one
	Created       time.Time
}

// recordFormat distinguishes a record from any other JSON.
const recordFormat = "ddpbatch attempt"

// Encode returns the bytes of the record's file. It returns an error for a record that could not be read back.
func (r Record) Encode() ([]byte, error) {
	if !utf8.ValidString(r.Run) { // encoding/json would replace the wrong bytes
		return nil, errors.New("the name of the run is not UTF-8")
	}
	w := writer{}
	w.open("{")
	w.field("format", recordFormat)
	w.field("version", Version)
	w.field("run", r.Run)
	w.field("attempt", r.Attempt)
	w.field("resumed_step", r.ResumedStep)
	w.field("resumed_folder", r.ResumedFolder)
	w.field("created", r.Created)
	if w.err != nil {
		return nil, w.err
	}
	data := seal(w.buf.Bytes())
	if _, err := ParseRecord(data); err != nil {
		return nil, fmt.Errorf("the record would not be readable: %w", err)
	}
	return data, nil
}

// ParseRecord parses the bytes of a record's file, with the same checks and errors as Parse.
func ParseRecord(data []byte) (Record, error) {
	if len(data) > MaxRecordBytes {
		return Record{}, fmt.Errorf("it is %d bytes long, at most %d are allowed", len(data), MaxRecordBytes)
	}
	h, _, err := open(data, recordFormat, 2)
	if err != nil {
		return Record{}, err
	}
	if err := h.require("run", "attempt", "resumed_step", "resumed_folder", "created"); err != nil {
		return Record{}, err
	}
	var f struct {
		Run           string    `json:"run"`
		Attempt       int       `json:"attempt"`
		ResumedStep   int64     `json:"resumed_step"`
		ResumedFolder string    `json:"resumed_folder"`
		Created       time.Time `json:"created"`
	}
	if err := unmarshal(data, &f); err != nil {
		return Record{}, err
	}
	r := Record(f)
	if err := r.check(); err != nil {
		return Record{}, err
	}
	return r, nil
}

func (r Record) check() error {
	if len(r.Run) > MaxName {
		return fmt.Errorf("run has a name of %d bytes, at most %d are allowed", len(r.Run), MaxName)
	}
	if r.Attempt < 1 || r.Attempt > MaxAttempt {
		return fmt.Errorf("attempt is %d", r.Attempt)
	}
	if r.ResumedStep == -1 && r.ResumedFolder == "" {
		return nil
	}
	f, ok := ParseFolder(r.ResumedFolder)
	if !ok || f.Broken || f.Step != r.ResumedStep {
		return fmt.Errorf("resumed from step %d in the folder %s", r.ResumedStep, quote(r.ResumedFolder))
	}
	return nil
}

// Superseded reports whether a later attempt has superseded what an attempt saved at a step, and returns the record of the latest such
// attempt. That attempt resumed from an earlier step, so the checkpoint belongs to a history that the run has abandoned. A record has no
// such effect if a still later attempt has resumed from the very folder: then it was written late, by an attempt that had itself been
// superseded. records are those of the checkpoint's own run, in any order. folder is "" if the save has no folder yet.
func Superseded(records []Record, attempt int, step int64, folder string) (by Record, yes bool) {
	taken := 0 // the last attempt that resumed from it
	for _, r := range records {
		if folder != "" && r.ResumedFolder == folder {
			taken = max(taken, r.Attempt)
		}
	}
	for _, r := range records {
		if r.Attempt > max(attempt, taken, by.Attempt) && r.ResumedStep < step {
			by, yes = r, true
		}
	}
	return by, yes
}
