package main

import (
	"cmp"
	"fmt"
	"os"

	"ddpbatch/mpi/launch"
	streams "ddpbatch/mpi/launch/output"
)

// prefixVariable is torchrun's, for what --prefix says.
const prefixVariable = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"

// setOutput says what becomes of the workers' output.
func (o *runOptions) setOutput(e *env, w *workers, cfg *launch.AgentConfig) error {
	cfg.Output = streams.Config{
		Redirects: o.redirects, Tees: o.tees,
		LocalRanks: o.localRanks, Ranks: o.ranks,
		OutFilters: o.outFilters, ErrFilters: o.errFilters,
		Prefix: cmp.Or(o.prefix, e.get(prefixVariable)),
	}
	if cfg.Output.Prefix == "" && !o.has("prefix") && !w.builtin { // whose lines say the rank themselves
		cfg.Output.Prefix, cfg.Output.PrefixSeveral = w.launch.Prefix, true
	}
	if err := streams.ParsePrefix(cfg.Output.Prefix); err != nil {
		return usagef("%s: %v", prefixVariable, err)
	}
	if o.logDir != "" {
		cfg.LogDir = e.abs(o.logDir)
	}
	if cfg.LogDir != "" || cfg.RunDir != nil || !o.wantsFiles() {
		return nil
	}
	// torchrun makes a folder, too, where files are asked for and none is named
	folder, err := os.MkdirTemp("", "ddpbatch-logs-")
	if err != nil {
		return fmt.Errorf("make a folder for the workers' logs (--log-dir names another): %w", err)
	}
	cfg.LogDir = folder
	o.note(e, "the workers' logs go to %s on %s; --log-dir names another folder", folder, cfg.Host)
	return nil
}

// wantsFiles tells whether output is to go to files at all.
func (o *runOptions) wantsFiles() bool {
	return wantsFiles(o.tees) || wantsFiles(o.redirects) || len(o.outFilters)+len(o.errFilters) > 0
}

func wantsFiles(m streams.Map) bool {
	if m.All != streams.None {
		return true
	}
	for _, mode := range m.Ranks {
		if mode != streams.None {
			return true
		}
	}
	return false
}
