package rundir

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"
)

const (
	specSchema = 1
	maxSpec    = 16 << 20 // bytes; a job with every option is a few KiB
	maxForeign = 1 << 20  // bytes of another user's spec, who may have many
)

// Spec is spec.json: what submit decided, for all later commands.
type Spec struct {
	Schema   int            `json:"schema"` // 1
	Run      string         `json:"run"`    // the run directory's own name
	Name     string         `json:"name"`   // the job's name
	Kind     string         `json:"kind"`   // "slurm", "simulate" or "train"
	Created  time.Time      `json:"created"`
	Version  string         `json:"version"`
	SHA256   string         `json:"sha256"`             // of bin/ddpbatch, in hexadecimal
	Source   string         `json:"source"`             // the job file that was submitted; absolute
	Sets     []string       `json:"sets,omitempty"`     // --set overrides, in order
	Defaults []DefaultsFile `json:"defaults,omitempty"` // defaults for the job; later files take precedence
	// the template of the batch script, if it is not ddpbatch's
	Template string `json:"template,omitempty"`
	// what the newest resume --set replaced, until an attempt has run with it
	Before *Overridden `json:"before,omitempty"`
	// the attempt from which on a resume --set checkpoint.resume="never" ignores earlier checkpoints; 0: the first
	Anew         int         `json:"anew,omitempty"`
	AnewElements map[int]int `json:"anew_elements,omitempty"` // the same for each element of an array, by its index
	// for each element the first attempt with a resume --set of the whole array that gave even finished elements something to do
	MoreElements map[int]int `json:"more_elements,omitempty"`
	Clusters     string      `json:"clusters,omitempty"`   // to which the job may be submitted, "a,b"; "": the default cluster
	ArraySize    int         `json:"array_size,omitempty"` // how many elements each of a sweep's arrays has; 0: it is one array
	// simulate's flags that describe the pretend job; only for kind "simulate"
	Pretend []string        `json:"pretend,omitempty"`
	WorkDir string          `json:"workdir"` // the job's; ranks run there, or in its copy below code/; absolute
	Nodes   int             `json:"nodes"`
	Job     json.RawMessage `json:"job"` // the whole job, as resolved by internal/jobfile
}

// DefaultsFile is a file of defaults for jobs: the site's or the user's.
type DefaultsFile struct {
	Name string `json:"name"`           // its path
	Site bool   `json:"site,omitempty"` // the site's, which may forbid keys
	Text string `json:"text"`
}

// Overridden is the part of a spec that a resume changes: by --set and, for a simulated run, by simulate's flags.
type Overridden struct {
	Element      *int            `json:"element,omitempty"` // the only array element with the change; nil: the whole run
	Sets         []string        `json:"sets,omitempty"`
	Anew         int             `json:"anew,omitempty"`
	AnewElements map[int]int     `json:"anew_elements,omitempty"`
	MoreElements map[int]int     `json:"more_elements,omitempty"`
	Pretend      []string        `json:"pretend,omitempty"`
	Clusters     string          `json:"clusters,omitempty"`
	WorkDir      string          `json:"workdir"`
	Nodes        int             `json:"nodes"`
	Job          json.RawMessage `json:"job"`
}

// Override applies a change to the spec, on trial until [Dir.FinalizeOverride].
func (s Spec) Override(o Overridden) Spec {
	before := s.Before
	if before == nil { // otherwise no attempt has finalized the previous one
		before = &Overridden{
			Sets: s.Sets, Anew: s.Anew, AnewElements: s.AnewElements, MoreElements: s.MoreElements,
			Pretend: s.Pretend, Clusters: s.Clusters, WorkDir: s.WorkDir, Nodes: s.Nodes, Job: s.Job,
		}
	}
	trial := *before
	trial.Element = o.Element
	s.Before = &trial
	return s.with(o)
}

func (s Spec) with(o Overridden) Spec {
	s.Sets, s.Anew, s.AnewElements, s.MoreElements, s.Pretend = o.Sets, o.Anew, o.AnewElements, o.MoreElements, o.Pretend
	s.Clusters, s.WorkDir, s.Nodes, s.Job = o.Clusters, o.WorkDir, o.Nodes, o.Job
	return s
}

// FinalizeOverride ends the trial of the newest Override. The change stays if the checkpoints of d fit it. If not, what it replaced comes
// back, so that later resumes are not refused too. An array element does not decide about a change made for another element, because it may
// have run without the change. Nor does an element take back what others run with, or will: a change made for the whole array, or any
// change while another element runs, stays on trial.
func (d *Dir) FinalizeOverride(fits bool) error {
	s := d.Spec()
	if s.Before == nil {
		return nil
	}
	if index, ok := d.Index(); ok {
		if s.Before.Element != nil && *s.Before.Element != index {
			return nil
		}
		if !fits && (s.Before.Element == nil || d.othersRun(index)) {
			return nil
		}
	}
	if !fits {
		s = s.with(*s.Before)
	}
	s.Before = nil
	return d.WriteSpec(s)
}

// othersRun reports whether an element of d's array other than index may run: its newest attempt has left no verdict, or cannot be read.
func (d *Dir) othersRun(index int) bool {
	elements, err := d.Whole().Elements()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(elements, func(element *Dir) bool {
		if other, _ := element.Index(); other == index {
			return false
		}
		newest, err := element.NewestAttempt()
		if newest > 0 && err == nil {
			_, err = element.Verdict(newest)
		}
		return err != nil
	})
}

// jobName matches valid job names. Nothing in them can leave the parent directory. It is compiled when first needed: counted repetitions
// take long to compile, and most processes never need it.
var jobName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`) })

// IsJobName reports whether name is a valid job name.
func IsJobName(name string) bool { return jobName().MatchString(name) }

func parseSpec(data []byte) (Spec, error) {
	var s Spec
	if err := json.Unmarshal(data, &s); err != nil {
		return Spec{}, err
	}
	return s, s.check()
}

func (s Spec) check() error {
	switch {
	case s.Schema != specSchema:
		return fmt.Errorf("schema is %d, but this ddpbatch supports %d: use the run's own bin/ddpbatch", s.Schema, specSchema)
	case !IsJobName(s.Name):
		return fmt.Errorf("name %q must be 1 to 64 of the characters A-Z a-z 0-9 . _ - and must not begin with . or -", s.Name)
	case s.Nodes < 0:
		return fmt.Errorf("nodes is %d", s.Nodes)
	}
	return nil
}

func readSpec(path string) (Spec, error) {
	limit := int64(maxSpec)
	if !ownFolder(filepath.Dir(path)) {
		limit = maxForeign
	}
	data, err := readFile(path, limit)
	if err != nil {
		return Spec{}, err
	}
	s, err := parseSpec(data)
	if err != nil {
		return Spec{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func writeSpec(path string, s Spec) error {
	if err := s.check(); err != nil {
		return err
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return writeBytes(path, 0o600, append(data, '\n'))
}
