package main

import (
	"context"
	"os/exec"
	"path/filepath"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/snapshot"
)

// codeKey is to blame for what cannot be copied.
const codeKey = "code.snapshot"

// codeCopy is the copy of the code that a new run gets.
type codeCopy struct {
	selection *snapshot.Selection
	record    snapshot.Record // once it is made
}

// selectCode decides what [code] of a job copies; nil: nothing. path is the job file's, for warnings.
func selectCode(ctx context.Context, e *env, job *jobfile.Job, path string) (*codeCopy, []jobfile.Fault, error) {
	git, err := exec.LookPath("git")
	if err != nil {
		git = "" // also where it would be one in the working directory
	}
	selection, lines, err := job.SelectCode(ctx, git, e.Environ)
	if selection == nil || err != nil {
		return nil, nil, err
	}
	var warnings []jobfile.Fault
	for _, line := range lines {
		warnings = append(warnings, jobfile.Fault{File: filepath.Base(path), Key: codeKey, Message: line})
	}
	return &codeCopy{selection: selection}, warnings, nil
}

// summary says what was copied; empty: nothing.
func (c *codeCopy) summary() string {
	if c == nil {
		return ""
	}
	return c.record.Summary()
}

// writer makes the copy in a new run directory; nil: there is none to make.
func (c *codeCopy) writer(ctx context.Context) func(dir string) error {
	if c == nil {
		return nil
	}
	names := snapshot.Names{Code: rundir.CodeName, Record: rundir.CodeRecordName, Diff: rundir.CodeDiffName}
	return func(dir string) (err error) {
		c.record, err = c.selection.Write(ctx, dir, names)
		return err
	}
}
