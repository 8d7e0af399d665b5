// Package rundir manages the directory of a run. It holds everything that submit decided, every attempt's verdict and logs, the ledger, the
// metrics and the checkpoints. So any later command can find out what happened from files alone, whether the run has ended or not.
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
// A run directory is created under another name and renamed, so that it exists completely or not at all. Files that decide something
// (spec.json, jobid, verdict.json) are replaced durably: written under another name, synced, renamed, and the directory synced. A crash
// leaves the old contents or the new. The directory has mode 0700, because the spec holds the job's environment.
//
// A command that acts on a run and starts its program must open it by [OpenOwn]. That checks that the directory, the spec, the program and
// the copy of the code belong only to the caller, and that nobody else can replace them in the directory around them. [Create] creates that
// directory accordingly, or fails. [Open] is for commands that only read.
//
// An attempt is claimed by renaming a directory to attempts/<n>, which fails if that exists, on local file systems and on NFS. A nonce in
// it identifies a process's own claim if a lost reply makes it look like another's. A process that finds a higher number than its own has
// been superseded ([ErrSuperseded]) and must neither commit nor delete.
//
// # Limits
//
// Everything read back is limited in size and checked, since other programs, full disks and people write here too. Agents, batch scripts
// and users' commands append to the ledger from several machines. O_APPEND is not atomic between machines on NFS, so they take turns with a
// lock (flock). If the file system has no locks (Lustre without -o flock, NFS without its lock daemon), or a process holds the lock for
// more than a few seconds, one of two lines that are written at the same time may be lost.
//
// # Example
//
//	d, err := rundir.Create(rundir.CreateConfig{Parent: "runs", Spec: spec, JobFile: text, Binary: exe, Now: time.Now()})
//	...
//	n, err := d.ClaimAttempt()
//	...
//	err = d.WriteVerdict(rundir.Verdict{Attempt: n, Cause: "done", FirstRank: -1})
package rundir
