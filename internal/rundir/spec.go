package rundir

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

const (
	specSchema = 1
	maxSpec    = 16 << 20 // bytes; a job with every option is a few KiB
	maxForeign = 1 << 20  // bytes of the spec of another user, who may have many
)

// Spec is spec.json: what submit decided, for every later command.
type Spec struct {
	Schema   int            `json:"schema"` // 1
	Run      string         `json:"run"`    // the run directory's own name
	Name     string         `json:"name"`   // the job's name
	Kind     string         `json:"kind"`   // "slurm", "simulate" or "train"
	Created  time.Time      `json:"created"`
	Version  string         `json:"version"`
	SHA256   string         `json:"sha256"`             // of bin/ddpbatch, in hexadecimal
	Source   string         `json:"source"`             // the job file that was submitted; absolute
	Sets     []string       `json:"sets,omitempty"`     // what --set laid over it, in order
	Defaults []DefaultsFile `json:"defaults,omitempty"` // what the job was laid over, the later over the earlier
	// the text that the batch script is rendered from, where it is not ddpbatch's
	Template string `json:"template,omitempty"`
	// what the newest resume --set has changed, until an attempt has run with it
	Before *Overridden `json:"before,omitempty"`
	// the attempt from which on a resume --set asks to begin anew (checkpoint.resume = "never"); 0: the first
	Anew         int         `json:"anew,omitempty"`
	AnewElements map[int]int `json:"anew_elements,omitempty"` // that of each element of an array, by its index
	// of each element the first attempt with what a resume --set of the whole array gave even finished ones to do
	MoreElements map[int]int `json:"more_elements,omitempty"`
	Clusters     string      `json:"clusters,omitempty"`   // that the job may be submitted to, "a,b"; "": the default cluster
	ArraySize    int         `json:"array_size,omitempty"` // how many elements each of a sweep's arrays has; 0: it is one array
	// flags of simulate that say what the pretend job is like; of kind "simulate" alone
	Pretend []string        `json:"pretend,omitempty"`
	WorkDir string          `json:"workdir"` // the job's; ranks run there, or in the copy of it below code/; absolute
	Nodes   int             `json:"nodes"`
	Job     json.RawMessage `json:"job"` // the whole job, as internal/jobfile resolved it
}

// DefaultsFile holds keys for jobs that do not say otherwise: those of the site, or of the user.
type DefaultsFile struct {
	Name string `json:"name"`           // its path
	Site bool   `json:"site,omitempty"` // it is the site's, which may forbid keys
	Text string `json:"text"`
}

// Overridden is the part of a spec that a resume changes: by --set, and of a simulated run by simulate's flags, too.
type Overridden struct {
	Element      *int            `json:"element,omitempty"` // of an array, which alone is resumed with the change; nil: all of the run is
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

// Override lays a changed job over the spec, on trial until [Dir.FinalizeOverride].
func (s Spec) Override(o Overridden) Spec {
	before := s.Before
	if before == nil { // else no attempt has finalized the one before
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

// FinalizeOverride ends the trial of the newest Override: it stays, or, where the checkpoints of d do not fit it,
// what was before it comes back, lest every later resume is refused, too. An element of an array
// has no say in what another is resumed with: it may have run without.
func (d *Dir) FinalizeOverride(fits bool) error {
	s := d.Spec()
	if s.Before == nil {
		return nil
	}
	if index, ok := d.Index(); ok && s.Before.Element != nil && *s.Before.Element != index {
		return nil
	}
	if !fits {
		s = s.with(*s.Before)
	}
	s.Before = nil
	return d.WriteSpec(s)
}

// jobName is what job.toml allows as a name. Nothing in it can leave the parent directory. It is compiled when it is first needed: counted
// repetitions take long to compile, and most processes never need it.
var jobName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$`) })

// IsJobName reports whether a job may be called so.
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
		return fmt.Errorf("schema is %d where this ddpbatch knows %d: use the run's own bin/ddpbatch", s.Schema, specSchema)
	case !IsJobName(s.Name):
		return fmt.Errorf("name %q is not 1 to 64 of A-Z a-z 0-9 . _ - that begin with neither . nor -", s.Name)
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
