package jobfile

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/BurntSushi/toml"
)

// said is what a fault or a warning tells.
type said struct {
	at, set, file int
	msg           string
}

func (f finding) said() said { return said{f.at.offset, f.at.set, f.at.file, f.msg} }

// checkElements checks each element of a sweep as if its values stood in the file, and makes the job that of the first, with the sweep.
// What is wrong with several elements is told once. What the file alone lacks, and each element sets, is no fault.
func (c *checker) checkElements(s *sweep, values map[string]any, root *position, dir string) {
	alone, known := map[said]bool{}, map[said]bool{}
	for _, f := range slices.Concat(c.faults[s.faults:], c.warnings[s.warnings:]) {
		alone[f.said()] = true
	}
	c.faults, c.warnings, c.job = c.faults[:s.faults], c.warnings[:s.warnings], nil
	values, root = overlay(nil, values, &position{}, root) // elements set keys in these
	for index := range s.job.Len() {
		e := &checker{name: c.name, src: c.src, sets: c.sets, job: emptyJob()}
		e.job.Slurm.List = slices.Clone(s.array)
		for i, text := range s.job.values(index) {
			at := s.keys[i].at
			if problem := (override{path: s.keys[i].path, value: valueOf(text)}).apply(values, root, at); problem != "" {
				e.fault(at, s.keys[i].path, "%s", problem)
			}
		}
		e.checkAll(values, root, dir)
		if len(e.faults) == 0 {
			c.checkAlike(s, e, index, root)
		}
		name := fmt.Sprintf(" (element %d of the sweep, %s)", index, s.job.Name(index))
		added := func(f finding) (finding, bool) {
			if known[f.said()] {
				return f, false
			}
			known[f.said()] = true
			if !alone[f.said()] {
				f.msg += name
			}
			return f, true
		}
		for _, f := range e.faults {
			if f, isNew := added(f); isNew {
				c.add(f)
			}
		}
		for _, f := range e.warnings {
			if f, isNew := added(f); isNew && len(c.warnings) < maxFaults {
				c.warnings = append(c.warnings, f)
			}
		}
		if c.isFull() {
			return
		}
	}
	c.warnOfExport(s, root)
}

// warnOfExport warns where each element writes its model to one file.
func (c *checker) warnOfExport(s *sweep, root *position) {
	key := toml.Key{"train", "export"}
	if c.job != nil && c.job.Builtin() && c.job.Train.Export != "" && s.job.Len() > 1 &&
		!slices.ContainsFunc(s.keys, func(k sweptKey) bool { return slices.Equal(k.path, key) }) {
		c.warn(root, key, "each element of the sweep writes %s, so that one of them stays: "+
			"sweep it, too, or leave it out and use \"ddpbatch ckpt export\"", key)
	}
}

// checkAlike takes the first element's job for that of the sweep, and notes where another element is more than that job with the values
// of its keys set, or wants another batch script.
func (c *checker) checkAlike(s *sweep, e *checker, index int, root *position) {
	job := e.job
	if c.job == nil {
		whole := *job
		whole.Sweep = s.job
		c.job = &whole
	}
	own, err := c.job.Element(index)
	const instead = "submit a job for each value instead"
	switch {
	case err != nil:
		e.fault(s.at, toml.Key{"sweep"}, "%s", err)
	case !reflect.DeepEqual(c.job.BatchScript(""), job.BatchScript("")):
		e.fault(s.at, toml.Key{"sweep"}, "the sweep changes the batch script, which all elements share: %s", instead)
	case !reflect.DeepEqual(own, job):
		e.fault(s.at, toml.Key{"sweep"}, "the keys of the sweep decide over each other: %s", instead)
	case job.Slurm.Skips("array"):
		skip := toml.Key{"slurm", "skip"}
		e.fault(root.at(skip), skip, "%s: the elements of [sweep] are one array, so that --array cannot be left out", skip)
	}
}
