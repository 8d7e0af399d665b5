package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
)

// minKeep is the smallest Last: with one checkpoint, there is nothing to fall back to if it is corrupt.
const minKeep = 2

// Policy says which checkpoints of a run stay: those that any of its rules keeps, and always the
// newest good one, pinned ones, and the bases of deltas that stay. Superseded checkpoints stay until later
// attempts have Last checkpoints of their own. The zero value keeps all.
type Policy struct {
	Last   int           // keep this many of the newest; at least 2 if any rule is set
	Every  int64         // keep those of steps that are multiples of it; 0: none
	Within time.Duration // keep those made no longer ago than this, so long after the run only the other rules keep any; 0: none
	Best   int           // keep this many of the best by Metric, newer ones first among equals; 0: none
	Metric string        // a key of State.Metrics
	Max    bool          // a larger Metric is better
}

// Validate refuses a policy that is contradictory, or leaves a run without a checkpoint to fall back to.
func (p Policy) Validate() error {
	if p == (Policy{}) {
		return nil
	}
	if p.Best > 0 && p.Metric == "" {
		return errors.New("keep_best needs a metric to compare by")
	}
	return errors.Join(p.faults()...)
}

// faults returns what is wrong with the rules by themselves, under the names of Config's keys.
func (p Policy) faults() (errs []error) {
	if p.Last < minKeep {
		errs = append(errs, fmt.Errorf("keep_last is %d: must be at least %d, to have one to fall back to if the newest is corrupt", p.Last,
			minKeep))
	}
	if p.Every < 0 {
		errs = append(errs, fmt.Errorf("keep_every is %d: must be a number of steps, or 0 (none)", p.Every))
	}
	if p.Within < 0 {
		errs = append(errs, fmt.Errorf("keep_within is %v: must be a duration, or 0 (none)", p.Within))
	}
	if p.Best < 0 {
		errs = append(errs, fmt.Errorf("keep_best is %d: must be 0 (none) or more", p.Best))
	}
	return errs
}

// Decision is what a policy decides about one checkpoint.
type Decision struct {
	Info
	Keep    bool     `json:"keep"`
	Reasons []string `json:"reasons"` // for people to read: "last 3", "pinned"; never empty
}

// Plan returns what a policy would keep, in List's order, and removes nothing.
func (d *Dir) Plan(ctx context.Context, p Policy) ([]Decision, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	v, err := d.look(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("plan what to keep in %s: %w", d.path, classify(err))
	}
	return decisionsOf(d.applyPolicy(v, p, "")), nil
}

func decisionsOf(retentions []*retention) []Decision {
	list := make([]Decision, len(retentions))
	for i, v := range retentions {
		list[i] = Decision{Info: v.info, Keep: len(v.keep) > 0, Reasons: v.keep}
		if !list[i].Keep {
			list[i].Reasons = []string{v.drop}
		}
	}
	return list
}

// retention is what a policy decides about one checkpoint: a Decision in the making.
type retention struct {
	*folderInfo
	keep []string // reasons
	drop string   // why it may be removed, if nothing keeps it

	maybeBaseOf string // the unreadable folder that alone keeps it, because it may hold a delta of this one
}

func (v *retention) reason(format string, args ...any) {
	v.keep = append(v.keep, fmt.Sprintf(format, args...))
}

// applyPolicy applies a policy to what a look has found. saved is the folder that has just been committed.
func (d *Dir) applyPolicy(v *view, p Policy, saved string) []*retention {
	all := make([]*retention, len(v.folders))
	for i, e := range v.folders {
		all[i] = &retention{folderInfo: e, drop: "no rule keeps it"}
		if p == (Policy{}) {
			all[i].reason("no policy is set")
		}
		if e.name == saved {
			all[i].reason("just saved")
		}
		d.keepUntouchable(all[i])
		for _, label := range e.info.Pinned {
			all[i].reason("%s", strings.TrimSpace("pinned "+label))
		}
	}
	good := d.goodCheckpoints(all)
	p.keep(good, d.now())
	for _, one := range all {
		d.judge(one, good, p)
	}
	d.keepBases(all)
	return all
}

// keepUntouchable keeps what this attempt of this run must not remove.
func (d *Dir) keepUntouchable(v *retention) {
	folder, _ := manifest.ParseFolder(v.name)
	switch {
	case folder.Broken:
		v.reason("set aside to be looked at")
	case v.info.State == StatePartial:
		v.reason("not committed")
	case v.info.State == StateUnreadable:
		v.reason("it cannot be read")
	case v.info.State == StateNewer:
		v.reason("of a newer format")
	case v.m == nil:
		v.reason("its manifest is damaged")
	case v.m.Run != d.opt.Run:
		v.reason("of another run")
	case !d.mayRemove(v.m.Attempt):
		v.reason("of a newer attempt")
	}
}

// goodCheckpoints returns the good checkpoints of the run, newest first. Of several saves of a step it returns
// the newest.
func (d *Dir) goodCheckpoints(all []*retention) []*retention {
	var good []*retention
	for _, v := range slices.Backward(all) {
		if v.m == nil || v.m.Run != d.opt.Run || !d.good(v.folderInfo) {
			continue
		}
		if n := len(good); n > 0 && good[n-1].m.Step == v.m.Step {
			v.drop = fmt.Sprintf("step %d was saved again", v.m.Step)
			continue
		}
		good = append(good, v)
	}
	return good
}

// keep applies the rules to the good checkpoints, newest first.
func (p Policy) keep(good []*retention, now time.Time) {
	for i, v := range good {
		if i == 0 {
			v.reason("newest")
		}
		if i < p.Last {
			v.reason("last %d", p.Last)
		}
		if p.Every > 0 && v.m.Step%p.Every == 0 {
			v.reason("every %d steps", p.Every)
		}
		if p.Within > 0 && now.Sub(v.m.Created) <= p.Within {
			v.reason("within %s", shortDuration(p.Within))
		}
	}
	var ranked []*retention
	for _, v := range good {
		if _, ok := v.m.Metrics[p.Metric]; ok && p.Best > 0 {
			ranked = append(ranked, v)
		}
	}
	slices.SortStableFunc(ranked, func(a, b *retention) int {
		if p.Max {
			a, b = b, a
		}
		return cmp.Compare(a.m.Metrics[p.Metric], b.m.Metrics[p.Metric])
	})
	for _, v := range ranked[:min(p.Best, len(ranked))] {
		v.reason("best %d by %s", p.Best, p.Metric)
	}
}

// judge decides about checkpoints that are not good. A broken one goes when there are p.Last good
// newer ones, a superseded one when newer attempts have p.Last of their own. One that was found damaged
// only once may be good: it goes no sooner than a good one would.
func (d *Dir) judge(v *retention, good []*retention, p Policy) {
	switch {
	case v.m == nil || v.info.State == StateUnreadable || d.good(v.folderInfo):
	case v.info.State == StateSuperseded:
		v.drop = fmt.Sprintf("superseded by attempt %d", v.by)
		later := 0
		for _, one := range good {
			later += boolToInt(one.m.Attempt > v.m.Attempt)
		}
		if later < p.Last {
			v.reason("superseded, with fewer than %d of later attempts", p.Last)
		}
	case v.info.Committed && d.rejection(v.id()) == nil && p != (Policy{Last: p.Last}):
		v.reason("found damaged, but only once: a rule other than the last %d may keep it", p.Last)
	default:
		v.drop = "broken"
		after := slices.IndexFunc(good, func(one *retention) bool { return byAge(one.folderInfo, v.folderInfo) < 0 })
		if after < 0 {
			after = len(good)
		}
		if after < p.Last {
			v.reason("broken, with fewer than %d good ones after it", p.Last)
		}
	}
}

// shortDuration returns a duration without the zeros that Go prints at its end: 24h, not 24h0m0s.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// keepBases keeps the bases of deltas that stay, and the possible bases of checkpoints whose manifest
// cannot be read.
func (d *Dir) keepBases(all []*retention) {
	for _, delta := range all {
		if len(delta.keep) == 0 {
			continue
		}
		if delta.m == nil && (delta.info.State == StateUnreadable || delta.info.State == StateNewer) {
			d.keepPossibleBases(all, delta)
			continue
		}
		for _, v := range all {
			if delta.m != nil && delta.m.Base != nil && v.m != nil && v.name == delta.m.Base.Folder && v.crc == delta.m.Base.CRC {
				v.reason("base of step %d", delta.m.Step)
			}
		}
	}
}

// keepPossibleBases keeps the checkpoints of which one with an unreadable manifest may be a delta. The names
// of its files show its run and attempt: a base is of the same run, and not of a later attempt. If these
// names cannot be read either, only the newest full checkpoint before it is kept.
func (d *Dir) keepPossibleBases(all []*retention, delta *retention) {
	attempt, own, known := d.writerOf(delta.files)
	if known && !own {
		return
	}
	for _, v := range slices.Backward(all) {
		if v.m == nil || v.m.Base != nil || v.m.Run != d.opt.Run || v.m.Step > delta.info.Step || known && v.m.Attempt > attempt {
			continue
		}
		if !known && v.info.State == StateBroken {
			continue // it cannot be the base of a readable delta
		}
		if len(v.keep) == 0 {
			v.maybeBaseOf = delta.name
		}
		v.reason("perhaps the base of step %d, which cannot be read", delta.info.Step)
		if !known {
			return
		}
	}
}

// logPossibleBases logs that old checkpoints fill the disk only because another one cannot be read.
func (d *Dir) logPossibleBases(retentions []*retention) {
	stay, because := 0, ""
	for _, one := range retentions {
		if one.maybeBaseOf != "" {
			stay, because = stay+1, one.maybeBaseOf
		}
	}
	if stay > 0 {
		d.log.Warn("old checkpoints are kept: one that cannot be read may be a delta of them", "path", d.path, "stay",
			stay, "unread", because)
	}
}
