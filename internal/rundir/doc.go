// Package rundir is the directory of one run: everything that submit decided,
// every attempt's verdict and logs, the ledger, the metrics and the
// checkpoints, so that any later command can tell what happened from files
// alone, running or long finished.
//
//	runs/<name>-<YYYYmmdd-HHMMSS>-<8 hex>/
//	  job.toml  spec.json (0600)  script.sh  jobid  bin/ddpbatch  slurm-<jobid>.log
//	  code/  code.json  code.diff       a copy of the user's code, where the job asks for one
//	  attempts/<n>/verdict.json
//	  attempts/<n>/logs/<host>.<rank>.out  .err
//	  attempts/<n>/claim-<nonce>/       an empty folder, by which who claimed the attempt knows it for its own
//	  attempts/.claim-<nonce>/          left by a process that was killed while it claimed an attempt
//	  attempts/<n>/reach/<agent>.json   what an agent tried that did not get through to agent 0
//	  claims/<n>/claim.json     who submits the run, or did; the highest number counts
//	  claims/.new-<nonce>/              left by a process that was killed while it claimed the run
//	  ledger.jsonl
//	  metrics.jsonl
//	  steps.jsonl               how long the steps of each rank take
//	  checkpoints/
//	  tasks/<index>/            the same again for each element of an array
//	  tasks/<values>            of a sweep: a link to the element that has these values
//	runs/.job-<name>-<jobid>    a symbolic link to the run
//
// # Guarantees
//
// A run directory is made under another name and renamed into place: it is
// there whole or not at all. Files that decide something (spec.json, jobid,
// verdict.json) are replaced durably: written under another name, flushed,
// renamed, and the directory flushed, so that a crash leaves the old text or
// the new one. The directory has mode 0700, because the spec holds the job's
// environment.
//
// Who acts on a run, and starts its program, opens it by [OpenOwn]: directory, spec,
// program and copy of the code belong to the caller alone, and in the folder around them nobody else can put others
// in their place. [Create] makes that folder so, or refuses it. [Open] is for who looks.
//
// An attempt is claimed by renaming a folder to attempts/<n>, which fails where
// there is one, on local file systems and on NFS. A nonce in it tells one's own claim
// where a lost answer makes it look like another's. Whoever finds a higher number than its
// own has been superseded ([ErrSuperseded]) and must neither commit nor delete.
//
// # Limits
//
// Everything read back is bounded in size and checked, since other programs,
// full disks and people write here too. Agents, batch scripts and people's
// commands add to the ledger from several machines. O_APPEND is not atomic between
// those on NFS, so they take turns by a lock (flock); where the file system has none
// (Lustre without -o flock, NFS without its lock daemon), or one of them holds it for
// longer than a few seconds, of two lines that are added at once one may be lost.
//
// # Example
//
//	d, err := rundir.Create(rundir.CreateConfig{Parent: "runs", Spec: spec, JobFile: text, Binary: exe, Now: time.Now()})
//	...
//	n, err := d.ClaimAttempt()
//	...
//	err = d.WriteVerdict(rundir.Verdict{Attempt: n, Cause: "done", FirstRank: -1})
package rundir
