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

// minKeep is the smallest retention: with one, a corrupt checkpoint has nothing before it.
const minKeep = 2

// Policy says which checkpoints of a run stay: those that any of its rules keeps, and always the
// newest good one, what is pinned, and the bases of deltas that stay. What a later attempt has given
// up stays until later attempts have Last of their own. The zero value keeps all.
type Policy struct {
	Last   int           // the newest so many; at least 2 where any rule is set
	Every  int64         // those of steps that are multiples of it; 0: none
	Within time.Duration // those made no longer ago than this, so that long after the run only the other rules hold; 0: none
	Best   int           // the best so many by Metric, newer ones first among equals; 0: none
	Metric string        // a key of State.Metrics
	Max    bool          // a larger Metric is the better one
}

// Validate refuses a policy that makes no sense, or leaves a run nothing to fall back to.
func (p Policy) Validate() error {
	if p == (Policy{}) {
		return nil
	}
	if p.Best > 0 && p.Metric == "" {
		return errors.New("keep_best needs the metric to compare by")
	}
	return errors.Join(p.faults()...)
}

// faults are those of the rules by themselves, under the names of Config's keys.
func (p Policy) faults() (errs []error) {
	if p.Last < minKeep {
		errs = append(errs, fmt.Errorf("keep_last is %d: must be at least %d, or a corrupt checkpoint has nothing before it", p.Last,
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

// Decision is what a policy says about one checkpoint.
type Decision struct {
	Info
	Keep    bool     `json:"keep"`
	Reasons []string `json:"reasons"` // in words for people: "last 3", "pinned"; never empty
}

// Plan says what a policy would keep, in List's order, and removes nothing.
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

// retention is what a policy says of one checkpoint: a Decision in the making.
type retention struct {
	*folderInfo
	keep []string // reasons
	drop string   // why it may go, where nothing keeps it

	maybeBaseOf string // the folder, not to be read, that alone keeps it: it may hold a delta of this one
}

func (v *retention) reason(format string, args ...any) {
	v.keep = append(v.keep, fmt.Sprintf(format, args...))
}

// applyPolicy holds what is there against a policy, just after what is in the folder saved was committed.
func (d *Dir) applyPolicy(v *view, p Policy, saved string) []*retention {
	all := make([]*retention, len(v.folders))
	for i, e := range v.folders {
		all[i] = &retention{folderInfo: e, drop: "no rule keeps it"}
		if p == (Policy{}) {
			all[i].reason("there is no policy")
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

// keepUntouchable keeps what this attempt of this run has no say in.
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

// goodCheckpoints are the good checkpoints of the run, newest first, and of several saves of a step the
// one that counts.
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

// keep applies the rules to the good ones, newest first.
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

// judge decides about those that are not good. A broken one goes when as many good ones as the
// policy wants are newer, a superseded one when newer attempts have as many of their own. One that
// was found damaged only once may be good: it goes no sooner than a good one would.
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
		v.reason("found damaged, but only once: another rule than the last %d may keep it", p.Last)
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

// shortDuration is a duration without the zeros that Go writes at its end: 24h.
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

// keepBases keeps what deltas that stay are made from, and what such may be made from whose
// manifest cannot be read.
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

// keepPossibleBases keeps what a checkpoint whose manifest cannot be read may be a delta of. The names
// of its files tell whose it is: another run's has no base of this one's, and that of an attempt none
// of a later one's. Where they cannot be had, it is the newest full one before it.
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
			continue // nothing can be read by it
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

// logPossibleBases says what fills the disk only because something cannot be read.
func (d *Dir) logPossibleBases(retentions []*retention) {
	stay, because := 0, ""
	for _, one := range retentions {
		if one.maybeBaseOf != "" {
			stay, because = stay+1, one.maybeBaseOf
		}
	}
	if stay > 0 {
		d.log.Warn("old checkpoints stay, since one that cannot be read may be made from them", "path", d.path, "stay",
			stay, "unread", because)
	}
}
