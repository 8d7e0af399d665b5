package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"ddpbatch/internal/jobfile"
	"ddpbatch/internal/redact"
	"ddpbatch/internal/rundir"
)

// Settings are the settings of a job, with values that may be secret blanked.
type Settings struct {
	TOML        string            `json:"toml"` // the keys of the defaults, the job file and --set, as one job file
	Environment map[string]string `json:"environment"`
}

// readOrigin reads from the spec where the run comes from.
func (d *Data) readOrigin(run *rundir.Dir) {
	spec := run.Spec()
	d.Run = Origin{
		Name: filepath.Base(run.Whole().Path()), Kind: shown(spec.Kind), Created: spec.Created,
		Version: shown(spec.Version), Nodes: spec.Nodes,
		Source: shown(spec.Source), WorkDir: shown(spec.WorkDir),
	}
	if job, err := jobfile.OfRun(run); err == nil {
		d.Run.Summary = shown(job.Summary())
	}
}

// readSettings reads the settings with which the run was submitted, or resumed with --set.
func (d *Data) readSettings(run *rundir.Dir) {
	spec := run.Spec()
	d.Settings = Settings{Environment: map[string]string{}}
	var job struct {
		Env map[string]string `json:"env"`
	}
	d.fault(json.Unmarshal(spec.Job, &job))
	for _, name := range slices.Sorted(maps.Keys(job.Env)) {
		value := redact.Text(job.Env[name])
		if redact.Named(name) {
			value = redact.Blank
		}
		d.Settings.Environment[shown(name)] = shown(value)
	}
	src, err := run.JobFile()
	if errors.Is(err, fs.ErrNotExist) { // a run started by a command line
		return
	}
	d.fault(err)
	if err == nil {
		d.Settings.TOML, err = settingsText(spec, src)
		d.fault(err)
	}
}

// settingsText returns the job file combined with the defaults and overrides, with values that may be secret blanked.
func settingsText(spec rundir.Spec, src []byte) (string, error) {
	var out strings.Builder
	defaults, err := jobfile.RecordedDefaults(spec.Defaults)
	var settings []jobfile.Setting
	if err == nil {
		settings, _, err = defaults.JobSettings("job.toml", filepath.Dir(spec.Source), src, spec.Sets)
	}
	for i := range settings {
		settings[i] = settings[i].Redacted()
	}
	if err == nil {
		err = jobfile.WriteTOML(&out, settings, false)
	}
	if err != nil { // in text that cannot be parsed, secrets cannot be recognized
		return "", fmt.Errorf("read the job's settings: %w", err)
	}
	return out.String(), nil
}
