package main

import (
	"context"
	"os/exec"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/rundir"
	"ddpbatch/internal/snapshot"
)

// codeKey is the key named in errors about what cannot be copied.
const codeKey = "code.snapshot"

// codeCopy is the copy of the code for a new run.
type codeCopy struct {
	selection *snapshot.Selection
	record    snapshot.Record // set after it is made
}

// selectCode decides what [code] of a job copies; nil means nothing. path is the job file's absolute path, for warnings.
func selectCode(ctx context.Context, e *env, job *jobfile.Job, path string) (*codeCopy, []jobfile.Fault, error) {
	git, err := exec.LookPath("git")
	if err != nil {
		git = "" // also if git would be a program in the working directory
	}
	selection, lines, err := job.SelectCode(ctx, git, e.Environ)
	if selection == nil || err != nil {
		return nil, nil, err
	}
	var warnings []jobfile.Fault
	for _, line := range lines {
		warnings = append(warnings, jobfile.Fault{File: e.short(path), Key: codeKey, Message: line})
	}
	return &codeCopy{selection: selection}, warnings, nil
}

// summary says what was copied. It returns "" for nothing.
func (c *codeCopy) summary() string {
	if c == nil {
		return ""
	}
	return c.record.Summary()
}

// writer returns a function that makes the copy in a new run directory, or nil if there is nothing to copy.
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
