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

// directives returns the options of sbatch, quoted for its reader, with the word "hetjob" between the components of a heterogeneous job.
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

// component returns the script of a job that consists only of further component i. Words on sbatch's command line belong to the first
// component.
func (s Script) component(i int) Script {
	c := s.Components[i]
	s.Options = Options{List: c.Options.List, Skip: s.Options.Skip}
	s.Nodes, s.LeastNodes, s.Nproc, s.CPUsPerRank = c.Nodes, 0, c.Nproc, c.CPUsPerRank
	s.Words, s.Components = nil, nil
	return s
}

// requested returns the options that ask sbatch for nodes, tasks and cores.
func (s Script) requested() []string {
	var options []Option
	if s.isRange() {
		options = append(options, Option{Name: "nodes", Value: strconv.Itoa(s.LeastNodes) + "-" + strconv.Itoa(s.Nodes)})
	}
	// sbatch computes ntasks itself; if it is given ntasks, it treats ntasks-per-node as a maximum
	shape := slices.DeleteFunc(s.shape(), func(o Option) bool { return o.Name == "ntasks" || o.Name == "nodes" && s.isRange() })
	if s.isRange() { // sbatch would ask for at most as many nodes as tasks, and computes the tasks from the fewest nodes (seen in 22.05)
		shape = slices.DeleteFunc(shape, func(o Option) bool { return o.Name == "ntasks-per-node" })
	}
	if least := s.leastCPUs(); least.Name != "" {
		shape = append(slices.DeleteFunc(shape, func(o Option) bool { return o.Name == least.Name }), least)
	}
	return s.words(append(options, shape...))
}

// shape returns the options that both sbatch and srun need: how many tasks on how many nodes, with how
// many cores. srun needs them again because what it inherits from the job changed
// between releases: 22.05 and 23.02 ignore the job's cpus-per-task, 23.11 does not.
func (s Script) shape() []Option {
	tasks, cpus := 1, s.CPUsPerRank*s.Nproc
	if s.Mode == "task" {
		tasks, cpus = s.Nproc, s.CPUsPerRank
	}
	nodes, ntasks := strconv.Itoa(s.Nodes), strconv.Itoa(s.Nodes*tasks)
	if s.isRange() { // one agent on each of the nodes that Slurm has allocated
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

// isRange reports whether Slurm chooses the number of nodes, from LeastNodes to Nodes.
func (s Script) isRange() bool { return s.LeastNodes > 0 && s.LeastNodes < s.Nodes }

// program returns the path of the ddpbatch that the job runs.
func (s Script) program() string { return filepath.Join(s.RunDir, "bin", "ddpbatch") }

// isArray reports whether the job is an array.
func (s Script) isArray() bool { return s.given("array") && !s.Options.Skips("array") }

// outputPattern returns the name of the job's output file as a pattern of sbatch. A percent sign in the run
// directory is doubled so that it stands for itself.
func (s Script) outputPattern() string {
	file := "slurm-%j.log"
	if s.isArray() {
		file = "slurm-%A_%a.log"
	}
	return strings.ReplaceAll(s.RunDir, "%", "%%") + "/" + file
}

// lastingOptions returns options that keep the job running through failures, unless the user has set them: Slurm may start the job again,
// sends a warning to its script before its end ("B:": only to the shell, not to the processes of the step), and does not end the job with a
// lost node if the run may go on with fewer nodes.
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

// given reports whether the job file has one of the named options.
func (s Script) given(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		_, given := s.Options.Get(name)
		return given
	})
}

// Warning returns the signal that the job asks of sbatch: the user's own, or ddpbatch's, which its script passes on. It returns false if
// the job asks for none.
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

// leastCPUs returns an option that asks for a core for each rank of a node if the job does not set a number of cores. It returns no option
// if none is necessary. It is necessary in agent mode: a node has one task, for which Slurm's default is one core. The script hides the
// number from srun, so that the step has all cores of the job, which are more if the job has whole nodes.
// Slurm 25.11 refuses mincpus beside ntasks-per-node=1, and cpus-per-task beside another count of cores.
//
// For jobs with GPUs a site may have a default of its own (slurm.conf, DefCpuPerGPU), which applies only if sbatch is not given
// cpus-per-task. So such a job asks for a task for each rank instead, although srun starts one on each node. That gives it a core for each
// rank, or the site's number for each GPU.
func (s Script) leastCPUs() Option {
	own := []string{"mincpus", "overcommit", "cpus-per-gpu"}
	counts := slices.ContainsFunc(slices.Concat(s.Options.Extra, s.Words), func(word string) bool {
		name := extraName(word)
		return slices.Contains(own, name) || name == "O" || name == "tres-per-task" && strings.Contains(word, "cpu")
	})
	// A job file sets skip = ["mincpus"] to ask for no number at all. The script never sets mincpus itself, so the word has no other
	// effect.
	switch {
	case s.Mode != "agent" || s.CPUsPerRank > 0 || s.Nproc < 2 || s.given(own...) || counts || s.Options.Skips("mincpus"):
		return Option{}
	case s.gpusPerNode() && !s.isRange(): // with a range sbatch would count the tasks, see requested
		return Option{Name: "ntasks-per-node", Value: strconv.Itoa(s.Nproc)}
	}
	return Option{Name: "cpus-per-task", Value: strconv.Itoa(s.Nproc)}
}

// gpusPerNode reports whether the job asks for GPUs without counting any of them by tasks or sockets.
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

// userOptions returns the options of the job file.
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

// srun returns the text between "srun" and the program that it starts. The components of a heterogeneous job are one step; each component
// has its own options, and all but the last are followed by the program.
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

// srunOptions returns srun's options. They need not be quoted: they are constants, numbers, and variables of Slurm and of the template that
// hold one word.
func (s Script) srunOptions() []string {
	return s.words(slices.Concat(s.shape(), s.endOptions(), []Option{
		{Name: "cpu-bind", Value: "none"},             // an agent binds its workers itself
		{Name: "mpi", Value: "${ddpbatch_mpi:-none}"}, // the agents exchange their addresses by PMI-2 if srun has it
		{Name: "export", Value: "ALL"},                // in spite of a SLURM_EXPORT_ENV=NONE
	}))
}

// endOptions returns the options that say what srun does when a task ends. Agents end together, when their workers are gone. If an agent
// fails, srun ends the step; by Slurm's default it would wait forever. If an agent has ended for longer than the others can need, srun ends
// the step, too. If the run may go on with fewer nodes, the step must outlive lost tasks and nodes; the script ends it
// when the run is over ("attempt watch").
func (s Script) endOptions() []Option {
	if s.MinNodes > 0 {
		return []Option{{Name: "kill-on-bad-exit", Value: "0"}, {Name: "no-kill", Flag: true}, {Name: "wait", Value: "0"}}
	}
	const exitMargin = 60 * time.Second
	return []Option{{Name: "kill-on-bad-exit", Value: "1"}, {Name: "wait", Value: strconv.Itoa(int((s.Grace + exitMargin) / time.Second))}}
}

// words formats options as sbatch and srun take them, without those in slurm.skip.
func (s Script) words(options []Option) []string {
	var words []string
	for _, o := range options {
		if o.Name != "" && !s.Options.Skips(o.Name) {
			words = append(words, o.word())
		}
	}
	return words
}
