package container

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Bind is a file or folder of the host that is visible in the container.
type Bind struct {
	Source, Target string // absolute
	ReadOnly       bool
}

// Same returns binds of paths to the same paths in the container. It skips empty ones.
func Same(paths ...string) []Bind {
	var binds []Bind
	for _, path := range paths {
		if path != "" {
			binds = append(binds, Bind{Source: path, Target: path})
		}
	}
	return binds
}

// ParseMount parses an item of container.mounts: "/data", "/data:/mnt/data" or "/data:/mnt/data:ro".
func ParseMount(text string) (Bind, error) {
	parts := strings.Split(text, ":")
	if len(parts) > 3 || parts[0] == "" {
		return Bind{}, fmt.Errorf(`%q is not a mount: write "/host/path:/container/path", or "/host/path:/container/path:ro" for read-only`,
			text)
	}
	bind := Bind{Source: parts[0], Target: parts[0]}
	if len(parts) > 1 {
		bind.Target = parts[1]
	}
	if len(parts) == 3 {
		switch parts[2] {
		case "ro":
			bind.ReadOnly = true
		case "rw":
		default:
			return Bind{}, fmt.Errorf(`%q ends in %q: a mount may end in ":ro" or ":rw"`, text, parts[2])
		}
	}
	for _, path := range []string{bind.Source, bind.Target} {
		if !filepath.IsAbs(path) {
			return Bind{}, fmt.Errorf("%q: the path %q is not absolute: both paths of a mount begin with /", text, path)
		}
		if err := CheckPath(path); err != nil {
			return Bind{}, fmt.Errorf("%q: %w", text, err)
		}
	}
	bind.Source, bind.Target = filepath.Clean(bind.Source), filepath.Clean(bind.Target)
	if bind.Target == "/" {
		return Bind{}, fmt.Errorf("%q would hide the whole image", text)
	}
	return bind, nil
}

// HostPath returns the path on the host of a path in the container, and reports whether one of the job's mounts shows it by another path
// there. own are binds beside the job's mounts. A path that no bind shows is returned as it is.
func (c Config) HostPath(path string, own []Bind) (string, bool) {
	binds, err := c.AllBinds(own)
	if err != nil {
		return path, false
	}
	target := filepath.Clean(path)
	above := lastAbove(binds, target)
	if above == nil || above.Source == above.Target {
		return path, false
	}
	rest, _ := filepath.Rel(above.Target, target)
	return filepath.Join(above.Source, rest), true
}

// tidy sorts binds so that a bind within another comes after it. Of several binds at one place it keeps the last, and it omits a bind whose
// content another one already shows there.
func tidy(binds []Bind) []Bind {
	at := map[string]Bind{}
	for _, b := range binds {
		at[b.Target] = b
	}
	var all []Bind
	for _, b := range at {
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b Bind) int { return strings.Compare(a.Target+"/", b.Target+"/") })
	var kept []Bind
	for _, b := range all {
		if above := lastAbove(kept, b.Target); above == nil || !above.shows(b) {
			kept = append(kept, b)
		}
	}
	return kept
}

// lastAbove returns the innermost of binds that contains target, or nil if there is none.
func lastAbove(binds []Bind, target string) *Bind {
	for i := len(binds) - 1; i >= 0; i-- {
		if isWithin(target, binds[i].Target) {
			return &binds[i]
		}
	}
	return nil
}

// shows reports whether a alone already shows b, which is bound within a.
func (a *Bind) shows(b Bind) bool {
	rest, _ := filepath.Rel(a.Target, b.Target)
	return filepath.Join(a.Source, rest) == b.Source && a.ReadOnly == b.ReadOnly
}

// isWithin reports whether path is folder or is below it.
func isWithin(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, strings.TrimSuffix(folder, "/")+"/")
}
