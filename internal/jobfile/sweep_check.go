package jobfile

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/BurntSushi/toml"
)

// said identifies a fault or a warning: its position and its message.
type said struct {
	at, set, file int
	msg           string
}

func (f finding) said() said { return said{f.at.offset, f.at.set, f.at.file, f.msg} }

// checkElements checks each element of a sweep as if its values were in the file. It sets the job to that of the first element, with the
// sweep. It reports a fault of several elements once. A key that the file lacks is not a fault if each element sets it.
func (c *checker) checkElements(s *sweep, values map[string]any, root *position, dir string) {
	alone, known := map[said]bool{}, map[said]bool{}
	for _, f := range slices.Concat(c.faults[s.faults:], c.warnings[s.warnings:]) {
		alone[f.said()] = true
	}
	c.faults, c.warnings, c.job = c.faults[:s.faults], c.warnings[:s.warnings], nil
	values, root = overlay(nil, values, &position{}, root) // copies, in which elements set keys
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

// warnOfExport warns if all elements write their models to the same file.
func (c *checker) warnOfExport(s *sweep, root *position) {
	key := toml.Key{"train", "export"}
	if c.job != nil && c.job.Builtin() && c.job.Train.Export != "" && s.job.Len() > 1 &&
		!slices.ContainsFunc(s.keys, func(k sweptKey) bool { return slices.Equal(k.path, key) }) {
		c.warn(root, key, "all elements of the sweep write the file %s, so only one model remains: "+
			"sweep the key, too, or leave it out and use \"ddpbatch ckpt export\"", key)
	}
}

// checkAlike uses the first element's job as that of the sweep. It adds a fault if another element differs from that job in more than the
// values of its keys, or needs another batch script.
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
		e.fault(s.at, toml.Key{"sweep"}, "the keys of the sweep affect each other: %s", instead)
	case job.Slurm.Skips("array"):
		skip := toml.Key{"slurm", "skip"}
		e.fault(root.at(skip), skip, "%s: the elements of [sweep] are one array, so --array cannot be skipped", skip)
	}
}
