package exposition

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"ddpbatch/internal/text"
)

// prefix is the prefix of the name of every metric.
const prefix = "ddpbatch_"

// format is a text format of figures.
type format int

const (
	prometheus  format = iota // Prometheus' text format 0.0.4: prometheus.io/docs/instrumenting/exposition_formats
	openMetrics               // OpenMetrics 1.0: prometheus.io/docs/specs/om/open_metrics_spec
)

// contentType returns the format's media type.
func (f format) contentType() string {
	if f == openMetrics {
		return "application/openmetrics-text; version=1.0.0; charset=utf-8"
	}
	return "text/plain; version=0.0.4; charset=utf-8"
}

// Labels are the labels of every sample. They distinguish the jobs of a node.
type Labels struct {
	Job string // the job's name
	ID  string // the job's id, as people write it
	Run string // the run's name
}

// maxLabel is how many bytes of a label's value are shown.
const maxLabel = 256

// list returns the labels. They are not called job and instance, which are Prometheus' own labels for its targets.
func (l Labels) list() []label {
	list := []label{{"job_id", l.ID}, {"job_name", l.Job}, {"run", l.Run}}
	for i := range list {
		list[i].value = text.Cut(text.Clean(list[i].value), maxLabel)
	}
	return list
}

type label struct{ name, value string }

// sample is one number of a family.
type sample struct {
	label label // distinguishes it from the other samples of the family; without a name it is the only one
	value float64
}

// family is a metric with its samples.
//
// The help of a metric must not change: node_exporter shows the files of all jobs of its node together. They may be from several versions
// of this program, and a metric may have only one help.
type family struct {
	name, help string
	counter    bool // false: it is a gauge
	samples    []sample
}

// families returns the figures as metrics. It omits unknown ones.
func (f figures) families() []family {
	one := func(value float64) []sample { return []sample{{value: value}} }
	all := []family{
		{name: "attempt", help: "Number of the newest attempt.", samples: one(float64(f.attempt))},
		{name: "restarts", help: "Attempts that have begun, less the first: requeues, resumes and restarts within a job.", counter: true,
			samples: one(float64(f.restarts))},
	}
	if m := f.newest; m != nil {
		all = append(all, family{name: "step", help: "Newest step in the run's metrics.", samples: one(float64(m.Step))})
		if m.Steps > 0 {
			all = append(all, family{name: "steps_planned", help: "Steps that there will be.", samples: one(float64(m.Steps))})
		}
		if !m.Time.IsZero() {
			all = append(all, family{name: "step_timestamp_seconds", help: "When the newest step was written, in seconds since 1970.",
				samples: one(float64(m.Time.UnixMilli()) / 1000)})
		}
		if m.SamplesPerSec > 0 && m.Attempt == f.attempt {
			all = append(all, family{name: "samples_per_second", help: "Samples that all ranks together train on in a second.",
				samples: one(m.SamplesPerSec)})
		}
	}
	return append(all, f.timeFamilies()...)
}

// timeFamilies returns the metrics that say where the run's time went.
func (f figures) timeFamilies() []family {
	b := f.time
	phase := func(name string, d time.Duration) sample { return sample{label{"phase", name}, toMillis(d.Seconds())} }
	all := []family{{
		name: "time_seconds", help: "Where the time of the run went since its submission. Productive time can become lost.",
		samples: []sample{
			phase("queued", b.Queued), phase("starting", b.Starting), phase("productive", b.Productive), phase("saving", b.Saving),
			phase("lost", b.LostTime()), phase("unknown", b.Unknown), phase("other", b.Other),
		},
	}}
	var lost []sample
	for _, cause := range slices.Sorted(maps.Keys(b.Lost)) {
		lost = append(lost, sample{label{"cause", cause}, toMillis(b.Lost[cause].Seconds())})
	}
	if lost != nil {
		all = append(all, family{name: "lost_seconds", help: "Time that was lost, by the cause that ended the attempt.", samples: lost})
	}
	return all
}

func toMillis(seconds float64) float64 { return math.Round(seconds*1000) / 1000 }

// write returns the figures in a format.
func (f figures) write(as format, labels []label) []byte {
	var b []byte
	for _, one := range f.families() {
		b = one.appendTo(b, as, labels)
	}
	if as == openMetrics {
		b = append(b, "# EOF\n"...)
	}
	return b
}

// appendTo appends the family. The names of a counter's samples end in _total; in OpenMetrics the counter's own name does not.
func (f family) appendTo(b []byte, as format, labels []label) []byte {
	kind, name := "gauge", prefix+f.name
	of := name
	if f.counter {
		kind, of = "counter", name+"_total"
		if as == prometheus {
			name = of
		}
	}
	b = append(b, "# HELP "+name+" "+f.help+"\n# TYPE "+name+" "+kind+"\n"...)
	for _, s := range f.samples {
		b = append(b, of...)
		for i, l := range labels {
			b = append(b, "{,"[min(i, 1)])
			b = l.appendTo(b)
		}
		if s.label.name != "" {
			b = s.label.appendTo(append(b, ','))
		}
		b = append(b, "} "...)
		b = append(strconv.AppendFloat(b, s.value, 'f', -1, 64), '\n')
	}
	return b
}

// appendTo appends the label. Both formats escape the same characters, and allow only UTF-8.
func (l label) appendTo(b []byte) []byte {
	b = append(append(b, l.name...), `="`...)
	for _, r := range l.value {
		switch r {
		case '\\', '"':
			b = append(b, '\\', byte(r))
		case '\n':
			b = append(b, `\n`...)
		default:
			b = append(b, string(r)...) // U+FFFD for invalid UTF-8
		}
	}
	return append(b, '"')
}
