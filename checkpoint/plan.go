package checkpoint

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"ddpbatch/checkpoint/internal/manifest"
)

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
	return decisions(d.plan(v, p, "")), nil
}

func decisions(verdicts []*verdict) []Decision {
	list := make([]Decision, len(verdicts))
	for i, v := range verdicts {
		list[i] = Decision{Info: v.info, Keep: len(v.keep) > 0, Reasons: v.keep}
		if !list[i].Keep {
			list[i].Reasons = []string{v.drop}
		}
	}
	return list
}

// verdict is a decision in the making.
type verdict struct {
	*entry
	keep []string // reasons
	drop string   // why it may go, where nothing keeps it

	perhaps string // the folder, not to be read, that alone keeps it: it may hold a delta of this one
}

func (v *verdict) reason(format string, args ...any) {
	v.keep = append(v.keep, fmt.Sprintf(format, args...))
}

// plan holds what is there against a policy, just after what is in the folder saved was committed.
func (d *Dir) plan(v *view, p Policy, saved string) []*verdict {
	all := make([]*verdict, len(v.entries))
	for i, e := range v.entries {
		all[i] = &verdict{entry: e, drop: "no rule keeps it"}
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
	heads := d.heads(all)
	p.keep(heads, d.now())
	for _, one := range all {
		d.judge(one, heads, p)
	}
	d.keepBases(all)
	return all
}

// keepUntouchable keeps what this attempt of this run has no say in.
func (d *Dir) keepUntouchable(v *verdict) {
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

// heads are the good checkpoints of the run, newest first, and of several saves of a step the
// one that counts.
func (d *Dir) heads(all []*verdict) []*verdict {
	var heads []*verdict
	for _, v := range slices.Backward(all) {
		if v.m == nil || v.m.Run != d.opt.Run || !d.good(v.entry) {
			continue
		}
		if n := len(heads); n > 0 && heads[n-1].m.Step == v.m.Step {
			v.drop = fmt.Sprintf("step %d was saved again", v.m.Step)
			continue
		}
		heads = append(heads, v)
	}
	return heads
}

// keep applies the rules to the good ones, newest first.
func (p Policy) keep(heads []*verdict, now time.Time) {
	for i, v := range heads {
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
			v.reason("within %s", plain(p.Within))
		}
	}
	var ranked []*verdict
	for _, v := range heads {
		if _, ok := v.m.Metrics[p.Metric]; ok && p.Best > 0 {
			ranked = append(ranked, v)
		}
	}
	slices.SortStableFunc(ranked, func(a, b *verdict) int {
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
func (d *Dir) judge(v *verdict, heads []*verdict, p Policy) {
	switch {
	case v.m == nil || v.info.State == StateUnreadable || d.good(v.entry):
	case v.info.State == StateSuperseded:
		v.drop = fmt.Sprintf("superseded by attempt %d", v.by)
		later := 0
		for _, head := range heads {
			later += boolToInt(head.m.Attempt > v.m.Attempt)
		}
		if later < p.Last {
			v.reason("superseded, with fewer than %d of later attempts", p.Last)
		}
	case v.info.Committed && d.rejection(v.id()) == nil && p != (Policy{Last: p.Last}):
		v.reason("found damaged, but only once: another rule than the last %d may keep it", p.Last)
	default:
		v.drop = "broken"
		after := slices.IndexFunc(heads, func(head *verdict) bool { return byAge(head.entry, v.entry) < 0 })
		if after < 0 {
			after = len(heads)
		}
		if after < p.Last {
			v.reason("broken, with fewer than %d good ones after it", p.Last)
		}
	}
}

// plain is a duration without the zeros that Go writes at its end: 24h.
func plain(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
