package slurm

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// directives are the options of sbatch, quoted for its reader, and the word that parts the components of a heterogeneous job.
func (s Script) directives() ([]string, error) {
	own := s.words([]Option{
		{Name: "job-name", Value: s.Name},
		{Name: "output", Value: s.outputPattern()},
		{Name: "open-mode", Value: "append"}, // a requeued job goes on in the same file
		{Name: "chdir", Value: s.WorkDir},
	})
	words, err := quoteDirectives(slices.Concat(own, s.requested(), s.words(s.lastingOptions()), s.userOptions()))
	if err != nil {
		return nil, err
	}
	extra, err := s.extraWords()
	if err != nil {
		return nil, err
	}
	words = append(words, extra...)
	for i := range s.Components {
		c := s.component(i)
		more, err := quoteDirectives(append(c.requested(), c.userOptions()...))
		if err != nil {
			return nil, fmt.Errorf("component %d: %w", i+1, err)
		}
		words = append(append(words, "hetjob"), more...)
	}
	return words, nil
}

func quoteDirectives(words []string) ([]string, error) {
	for i, word := range words {
		if err := checkWord(word); err != nil {
			return nil, fmt.Errorf("sbatch option %s: %w", clip(word), err)
		}
		words[i] = quoteDirective(word)
	}
	return words, nil
}

// component is the script as if its job were one further component alone. Words on sbatch's command line are for the first.
func (s Script) component(i int) Script {
	c := s.Components[i]
	s.Options = Options{List: c.Options.List, Skip: s.Options.Skip}
	s.Nodes, s.LeastNodes, s.Nproc, s.CPUsPerRank = c.Nodes, 0, c.Nproc, c.CPUsPerRank
	s.Words, s.Components = nil, nil
	return s
}

// requested are the nodes, tasks and cores that sbatch is asked for.
func (s Script) requested() []string {
	var options []Option
	if s.isRange() {
		options = append(options, Option{Name: "nodes", Value: strconv.Itoa(s.LeastNodes) + "-" + strconv.Itoa(s.Nodes)})
	}
	// sbatch derives ntasks, and reads it beside ntasks-per-node as something else: a maximum
	shape := slices.DeleteFunc(s.shape(), func(o Option) bool { return o.Name == "ntasks" || o.Name == "nodes" && s.isRange() })
	if s.isRange() { // of which sbatch would take no more nodes than it has tasks, and it counts these for the fewest nodes (seen in 22.05)
		shape = slices.DeleteFunc(shape, func(o Option) bool { return o.Name == "ntasks-per-node" })
	}
	if least := s.leastCPUs(); least.Name != "" {
		shape = append(slices.DeleteFunc(shape, func(o Option) bool { return o.Name == least.Name }), least)
	}
	return s.words(append(options, shape...))
}

// shape is what sbatch and srun must both be told: how many tasks on how many nodes, with how
// many cores. srun must be told again because what it takes over from the job changed
// between releases: 22.05 and 23.02 ignore the job's cpus-per-task, 23.11 does not.
func (s Script) shape() []Option {
	tasks, cpus := 1, s.CPUsPerRank*s.Nproc
	if s.Mode == "task" {
		tasks, cpus = s.Nproc, s.CPUsPerRank
	}
	nodes, ntasks := strconv.Itoa(s.Nodes), strconv.Itoa(s.Nodes*tasks)
	if s.isRange() { // of agents, one a node, on as many nodes as Slurm has given
		nodes, ntasks = "$SLURM_JOB_NUM_NODES", "$SLURM_JOB_NUM_NODES"
	}
	options := []Option{
		{Name: "nodes", Value: nodes},
		{Name: "ntasks", Value: ntasks},
		{Name: "ntasks-per-node", Value: strconv.Itoa(tasks)},
	}
	if cpus > 0 {
		options = append(options, Option{Name: "cpus-per-task", Value: strconv.Itoa(cpus)})
	}
	return options
}

// isRange reports whether Slurm says how many nodes there are.
func (s Script) isRange() bool { return s.LeastNodes > 0 && s.LeastNodes < s.Nodes }

// program is the ddpbatch that the job runs.
func (s Script) program() string { return filepath.Join(s.RunDir, "bin", "ddpbatch") }

// isArray reports whether sbatch is asked for an array.
func (s Script) isArray() bool { return s.given("array") && !s.Options.Skips("array") }

// outputPattern names the job's output file, in sbatch's patterns; a percent sign of the run
// directory is doubled to stand for itself.
func (s Script) outputPattern() string {
	file := "slurm-%j.log"
	if s.isArray() {
		file = "slurm-%A_%a.log"
	}
	return strings.ReplaceAll(s.RunDir, "%", "%%") + "/" + file
}

// lastingOptions let the job outlive what happens to it, where its user has not said otherwise: Slurm may start it again, warns
// its script before the end ("B:": the shell alone, and not whatever runs in the step), and keeps it when
// it can do with fewer nodes.
func (s Script) lastingOptions() []Option {
	var options []Option
	if s.Requeue && !s.given("requeue", "no-requeue") {
		options = append(options, Option{Name: "requeue", Flag: true})
	}
	if w, asked := s.Warning(); asked && !s.given("signal") {
		options = append(options, Option{Name: "signal", Value: w.String()})
	}
	if s.MinNodes > 0 && !s.given("no-kill") {
		options = append(options, Option{Name: "no-kill", Flag: true})
	}
	return options
}

// given reports whether the job file has one of some options.
func (s Script) given(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		_, given := s.Options.Get(name)
		return given
	})
}

// Warning is the signal that sbatch is asked for: the user's own, or ddpbatch's, which its script hands on. It is false where none is.
func (s Script) Warning() (Warning, bool) {
	text, theirs := s.Options.Get("signal")
	switch {
	case s.Options.Skips("signal"):
		return Warning{}, false
	case theirs:
		w, err := ParseWarning(text)
		return w, err == nil && w.Lead > 0
	}
	lead := min(s.Lead.Truncate(time.Second), maxLead)
	return Warning{Signal: syscall.SIGUSR2, Batch: true, Lead: lead}, (s.Requeue || s.Chain) && lead > 0
}

// maxLead is the longest warning that sbatch takes (sbatch(1), --signal).
const maxLead = 65535 * time.Second

// leastCPUs asks for a core for each rank of a node where the job does not say how many; no option where it need not. It has to in
// agent mode, where a node has one task, for which Slurm's own default is one core. The script hides the
// number from srun, so that the step has all that the job has, which is more where it has whole nodes.
// Slurm 25.11 refuses mincpus beside ntasks-per-node=1, and cpus-per-task beside another count of cores.
//
// For jobs with GPUs a site may have a default of its own (slurm.conf, DefCpuPerGPU), which holds only where sbatch is given no
// cpus-per-task. So such a job asks for a task for each rank instead, though srun starts one on each node. That gives it a core for each
// rank, or the site's number for each GPU.
func (s Script) leastCPUs() Option {
	own := []string{"mincpus", "overcommit", "cpus-per-gpu"}
	counts := slices.ContainsFunc(slices.Concat(s.Options.Extra, s.Words), func(word string) bool {
		name := extraName(word)
		return slices.Contains(own, name) || name == "O" || name == "tres-per-task" && strings.Contains(word, "cpu")
	})
	// skip = ["mincpus"] is how a job asks for no number at all: the script has no mincpus of its own, and so nothing else to leave out
	switch {
	case s.Mode != "agent" || s.CPUsPerRank > 0 || s.Nproc < 2 || s.given(own...) || counts || s.Options.Skips("mincpus"):
		return Option{}
	case s.gpusPerNode() && !s.isRange(): // for which tasks would be counted
		return Option{Name: "ntasks-per-node", Value: strconv.Itoa(s.Nproc)}
	}
	return Option{Name: "cpus-per-task", Value: strconv.Itoa(s.Nproc)}
}

// gpusPerNode reports whether the job asks for GPUs, and counts none of them by tasks or sockets.
func (s Script) gpusPerNode() bool {
	words := slices.Concat(s.Options.Extra, s.Words)
	for _, o := range s.Options.List {
		words = append(words, o.word())
	}
	asked := false
	for _, word := range words {
		switch name := extraName(word); {
		case slices.Contains([]string{"gpus-per-task", "gpus-per-socket", "tres-per-task", "ntasks-per-socket", "ntasks-per-core"}, name):
			return false
		case name == "gpus", name == "G", name == "gpus-per-node", name == "gres" && strings.Contains(word, "gpu"):
			asked = true
		}
	}
	return asked
}

// userOptions are the options of the job file.
func (s Script) userOptions() []string {
	return s.words(slices.DeleteFunc(slices.Clone(s.Options.List),
		func(o Option) bool { return o.Name == "nodes" || o.Name == "cpus-per-task" }))
}

func (s Script) extraWords() ([]string, error) {
	var words []string
	for _, word := range s.Options.Extra {
		if err := CheckExtra(word); err != nil {
			return nil, err
		}
		if !s.Options.Skips(extraName(word)) {
			words = append(words, quoteDirective(word))
		}
	}
	return words, nil
}

// srun is all that stands between srun and the program that it starts. The components of a heterogeneous job are one step, of which each
// has options of its own and names the program once more.
func (s Script) srun() string {
	if len(s.Components) == 0 {
		return strings.Join(s.srunOptions(), " ")
	}
	parts := []string{"--het-group=0 " + strings.Join(s.srunOptions(), " ")}
	for i := range s.Components {
		parts = append(parts, "--het-group="+strconv.Itoa(i+1)+" "+strings.Join(s.component(i).srunOptions(), " "))
	}
	return strings.Join(parts, " "+ShellQuote(s.program())+" run : ")
}

// srunOptions are constants, numbers, and variables of Slurm's and the template's, which hold one word and need no quoting.
func (s Script) srunOptions() []string {
	return s.words(slices.Concat(s.shape(), s.endOptions(), []Option{
		{Name: "cpu-bind", Value: "none"},             // an agent binds its workers itself
		{Name: "mpi", Value: "${ddpbatch_mpi:-none}"}, // the agents tell each other their addresses by PMI-2 where there is one
		{Name: "export", Value: "ALL"},                // in spite of a SLURM_EXPORT_ENV=NONE
	}))
}

// endOptions say what srun does when a task ends. Agents end together, when their workers are gone: one that
// ended otherwise takes the step along, which by Slurm's default would wait for ever, and so does one that has ended for longer than
// the others can need. Where the run goes on with fewer nodes, the step must outlive tasks and nodes that are lost; the script ends it
// when the run is over ("attempt watch").
func (s Script) endOptions() []Option {
	if s.MinNodes > 0 {
		return []Option{{Name: "kill-on-bad-exit", Value: "0"}, {Name: "no-kill", Flag: true}, {Name: "wait", Value: "0"}}
	}
	const exitMargin = 60 * time.Second
	return []Option{{Name: "kill-on-bad-exit", Value: "1"}, {Name: "wait", Value: strconv.Itoa(int((s.Grace + exitMargin) / time.Second))}}
}

// words writes options as sbatch and srun take them, less those that the site refuses.
func (s Script) words(options []Option) []string {
	var words []string
	for _, o := range options {
		if o.Name != "" && !s.Options.Skips(o.Name) {
			words = append(words, o.word())
		}
	}
	return words
}
