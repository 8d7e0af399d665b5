package main

import (
	"fmt"
	"slices"
	"strings"

	"ddpbatch/internal/jobfile"
	"ddpbatch/slurm"
)

// note tells a person what is good to know and no error.
func (o *runOptions) note(e *env, format string, args ...any) {
	fmt.Fprintf(e.Err, "ddpbatch: "+format+"\n", args...)
}

// notes tell which flags change nothing, and why. One agent of the run says them.
// alloc is Slurm's, nil by hand.
func (o *runOptions) notes(e *env, alloc *slurm.Allocation) {
	for _, f := range idleFlags {
		if o.has(f.name) {
			o.note(e, "%s changes nothing: %s", o.how(f.name), f.idle)
		}
	}
	if keys := o.idleKeys(alloc); len(keys) > 0 {
		o.note(e, "%s: %s: nothing here depends on it", o.how("rdzv-conf"), strings.Join(keys, ", "))
	}
	o.noteVariables(e)
	if o.meantPython() {
		o.note(e, "what stands after -- is run as it is; without --, Python runs %s", o.command[0])
	}
	switch {
	case alloc == nil && o.nnodes.max <= 1:
		o.noteOneNode(e)
	case alloc == nil:
		o.noteMeeting(e)
	default:
		o.noteSlurm(e, alloc)
	}
}

// idleKeys are the keys of --rdzv-conf that change nothing in this run.
func (o *runOptions) idleKeys(alloc *slurm.Allocation) []string {
	keys := o.rdzv.conf.idle
	if comes := alloc == nil && o.nnodes.max > 1 && o.rdzv.backend == c10d; o.rdzv.conf.isHost != nil && !comes {
		keys = append(slices.Clone(keys), "is_host") // there is one node, or they have numbers
	}
	return keys
}

// noteOneNode is for a run of one node by hand, which meets nobody.
func (o *runOptions) noteOneNode(e *env) {
	why := "there is one node"
	var names []string
	if o.standalone {
		names = append(names, "rdzv-backend", "node-rank")
	}
	if o.standalone || o.rdzv.backend == c10d {
		if o.rdzv.port != 0 { // localhost:0 says no more than that
			names = append(names, "rdzv-endpoint")
		}
		names = append(names, "master-addr", "master-port")
		if o.has("master-port") {
			why += ", and MASTER_PORT is a free port"
		}
	}
	o.notUsed(e, why, append(names, "local-addr", "interface")...)
}

// noteMeeting is for several nodes by hand.
func (o *runOptions) noteMeeting(e *env) {
	host, flag := o.masterAddr, "master-addr"
	if o.rdzv.backend == c10d {
		host, flag = o.rdzv.host, "rdzv-endpoint"
		o.notUsed(e, "nodes meet at --rdzv-endpoint, and MASTER_PORT is a free port", "master-addr", "master-port")
	}
	if isLoopbackName(host) {
		o.note(e, "%s is %s: only agents on this machine can come; where nodes are machines, write the first one's name", o.how(flag), host)
	}
}

// noteSlurm is for a step of Slurm's.
func (o *runOptions) noteSlurm(e *env, alloc *slurm.Allocation) {
	o.notUsed(e, "Slurm says which nodes there are and how they meet", "nnodes", "node-rank", "rdzv-backend", "rdzv-endpoint", "rdzv-id", "master-addr")
	switch {
	case alloc.TaskMode():
		o.notUsed(e, "srun starts each worker as a task of its own", "nproc-per-node")
		if o.nnodes.min < o.nnodes.max {
			o.note(e, "%s: with a task per rank the run does not go on without some of them; start one task a node", o.how("nnodes"))
		}
	case len(alloc.Nodes) == 1:
		o.notUsed(e, "there is one node", "local-addr", "interface")
	}
}

// noteVariables tells of variables whose names are nearly torchrun's: they change nothing.
func (o *runOptions) noteVariables(e *env) {
	var known []string
	for _, f := range runFlags {
		known = append(known, f.variables()...)
	}
	for _, entry := range e.Environ {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "PET_") || slices.Contains(known, name) {
			continue
		}
		near := jobfile.Nearest(name, known)
		if f := runFlagNamed(nearFlag(strings.ToLower(name[len("PET_"):]))); near == "" && f != nil {
			near = f.variable()
		}
		if near != "" {
			o.note(e, "%s is no variable of run's: did you mean %s?", name, near)
		}
	}
}

// notUsed tells in one line which of some flags were given for nothing.
func (o *runOptions) notUsed(e *env, why string, names ...string) {
	var list []string
	for _, name := range names {
		// what --rdzv-endpoint says of --master-addr is told of itself
		if how, given := o.given[name]; given && !(name == "master-addr" && how == o.given["rdzv-endpoint"]) {
			list = append(list, how)
		}
	}
	if len(list) > 0 {
		o.note(e, "not needed: %s: %s", strings.Join(list, ", "), why)
	}
}
