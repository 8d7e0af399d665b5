package launch

import (
	"context"
	"log/slog"
	"time"

	"ddpbatch/internal/proc"
)

// sweepLimit bounds how long the processes that the workers left behind are looked for and waited for.
const sweepLimit = 10 * time.Second

// keeper sees to it that nothing the workers have started outlives their round, or this process. The zero keeper does
// nothing: then only the workers themselves end with this process, and with them their groups.
type keeper struct {
	guard  *proc.Guard
	reaper *proc.Reaper
	log    *slog.Logger
}

// newKeeper begins to keep where c says so; what cannot be had is said.
func newKeeper(c AgentConfig) *keeper {
	k := &keeper{log: c.Log}
	if !c.Sweep {
		return k
	}
	var err error
	if k.guard, err = proc.StartGuard(c.Log); err != nil { // first: it must not become a child of this process
		c.Log.Warn("what the workers start may outlive this agent if it is killed", "error", err)
	}
	if k.reaper, err = proc.Subreaper(); err != nil {
		c.Log.Warn("processes that leave their workers may not be found", "error", err)
	}
	return k
}

// mark tells of a round's cookie, before its first worker is started.
func (k *keeper) mark(cookie string) {
	if err := k.guard.Sweep(cookie); err != nil {
		k.log.Warn("what the workers start may outlive this agent if it is killed", "error", err)
	}
}

// sweep kills what the workers of a round have left behind, and returns how many processes do not end.
func (k *keeper) sweep(ctx context.Context, cookie string) int {
	if k.reaper == nil {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, sweepLimit)
	defer cancel()
	swept, err := proc.SweepOrphans(ctx, cookie)
	if err != nil {
		k.log.Warn("whether the workers have left processes behind is not known", "error", err)
	}
	if len(swept.Killed) > 0 {
		k.log.Info("processes that the workers had left behind were killed", "processes", swept.Killed)
	}
	if len(swept.Left) > 0 {
		k.log.Error("processes that the workers have left behind do not end", "processes", swept.Left)
	}
	return len(swept.Left)
}

// end ends the keeping; no worker is left.
func (k *keeper) end() error {
	k.guard.End()
	if k.reaper == nil {
		return nil
	}
	return k.reaper.Close()
}
