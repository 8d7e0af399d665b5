package templates

import (
	"embed"
	"path"
	"slices"
)

// Batch is the template of the batch script; slurm.Script.Render fills it.
//
//go:embed batch.sh.tmpl
var Batch string

//go:embed jobs/*.toml
var jobs embed.FS

//go:embed completion/ddpbatch.*
var completions embed.FS

// Shells are those that Completion has a script for.
func Shells() []string { return []string{"bash", "zsh", "fish"} }

// Completion is the script by which a shell completes ddpbatch's command lines. It asks "ddpbatch complete SHELL WORDS..." for the ways in which
// the last of the words may go on; the answer's first line is "words", "files" or "folders" (the shell offers those itself, besides), with " open"
// behind it where no blank is to follow, and each further line a way on, a tab, and what it is.
func Completion(shell string) (script string, ok bool) {
	if !slices.Contains(Shells(), shell) {
		return "", false
	}
	text, err := completions.ReadFile("completion/ddpbatch." + shell)
	if err != nil {
		panic("templates: a completion script is not embedded")
	}
	return string(text), true
}

// Starter is a job file to start from.
type Starter struct {
	Name    string `json:"name"`    // as `ddpbatch init --template` takes it
	Summary string `json:"summary"` // one line, without a full stop
	Text    string `json:"-"`       // a whole job.toml
}

// Starters lists all starters, the one to try first first. The caller owns the slice.
func Starters() []Starter {
	starters := []Starter{
		{Name: "simulate", Summary: "a linear model on generated data, 2 nodes x 2 ranks: runs anywhere"},
		{Name: "mnist", Summary: "an MLP on handwritten digits by the built-in trainer, 4 nodes x 2 ranks"},
		{Name: "pytorch", Summary: "a PyTorch script, one rank per GPU, 2 nodes x 4 GPUs"},
		{Name: "command", Summary: "any command, several ranks on each node"},
	}
	for i := range starters {
		text, err := jobs.ReadFile(path.Join("jobs", starters[i].Name+".toml"))
		if err != nil {
			panic("templates: a starter is not embedded")
		}
		starters[i].Text = string(text)
	}
	return starters
}

// Find returns the starter with the given name.
func Find(name string) (s Starter, ok bool) {
	starters := Starters()
	i := slices.IndexFunc(starters, func(s Starter) bool { return s.Name == name })
	if i < 0 {
		return Starter{}, false
	}
	return starters[i], true
}
