package translate

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	words "ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// optionKey returns the key of job.toml for an option.
func optionKey(name string) string { return strings.ReplaceAll(name, "-", "_") }

// leftOut are options that ddpbatch does not need, with the reasons.
var leftOut = map[string]string{
	"output":    "logs are in the run directory (ddpbatch logs)",
	"error":     "logs are in the run directory (ddpbatch logs)",
	"open-mode": "logs are always appended to",
	"parsable":  `"ddpbatch submit --parsable" prints only the ID`,
	"test-only": `"ddpbatch submit --test-only" does that`,
	"wait":      `"ddpbatch submit --wait" does that`,
	"quiet":     "sbatch must print the job ID",
	"verbose":   "write it after --, as in: ddpbatch submit job.toml -- -v",
	"help":      "it only prints", "usage": "it only prints", "version": "it only prints",
}

// slurmKeys writes the script's options for Slurm into [slurm].
func (t *translation) slurmKeys() {
	s := &t.slurm
	var extra []string
	for _, g := range t.asked.options {
		word := quoted(g.Word())
		switch why, isLeftOut := leftOut[g.Name]; {
		case g.Name == "job-name" || g.Name == "chdir" || g.Name == "requeue" || g.Name == "ntasks" || g.Name == "ntasks-per-node" ||
			g.Name == "ntasks-per-gpu" || g.Name == "cpus-per-task" || g.Name == "nodes" || isPyxis(g):
		case isLeftOut:
			s.note(g.Line, "%s is left out: %s", word, why)
		case g.Name == "export":
			t.exportOption(g)
		case g.Name == "signal":
			t.signal(g)
		case g.Name == "gpus-per-task" && t.mode() == "agent":
			gpusPerTask(s, t.asked, g)
		case g.Name == "clusters" && !slurm.AreClusters(g.Value):
			s.note(g.Line, "not translated: %s: name one cluster or several, separated by commas", word)
		case t.countsTasks(g):
			s.note(g.Line, "not translated: %s: write gpus_per_node", word)
		case secretForm().MatchString(g.Value) || holdsSecret(g.Value):
			s.note(g.Line, "not translated: %s: it may hold a secret", word)
		case typed(s, g):
		case slurm.CheckExtra(g.Word()) == nil:
			if near := nearOption(g); near != "" {
				s.note(g.Line, "not translated: %s: sbatch itself does not have this option, so it is only in extra, in case your site "+
					"adds it; did you mean --%s?", word, near)
			}
			extra = append(extra, g.Word())
		default:
			_, err := slurm.ParseOption(optionKey(g.Name), g.Value)
			s.note(g.Line, "not translated: %s: %v", word, err)
		}
	}
	if len(extra) > 0 {
		s.put("extra", extra, "")
	}
}

// nearOption returns the option of sbatch that one which sbatch does not have resembles, or "" if there is none.
func nearOption(g slurm.Given) string {
	if _, err := slurm.ParseOption(optionKey(g.Name), g.Value); !errors.Is(err, slurm.ErrUnknownOption) {
		return ""
	}
	return strings.ReplaceAll(words.Nearest(optionKey(g.Name), slurm.OptionKeys()), "_", "-")
}

// typed sets the key of an option in a section, if there is one that accepts the value.
func typed(s *section, g slurm.Given) bool {
	key := optionKey(g.Name)
	if !g.HasValue {
		if _, err := slurm.ParseOption(key, true); err != nil {
			return false
		}
		s.put(key, true, "")
		return true
	}
	if n, err := strconv.ParseInt(g.Value, 10, 64); err == nil && strconv.FormatInt(n, 10) == g.Value {
		if _, err := slurm.ParseOption(key, n); err == nil {
			s.put(key, n, "")
			return true
		}
	}
	if _, err := slurm.ParseOption(key, g.Value); err != nil {
		return false
	}
	s.put(key, g.Value, "")
	return true
}

// exportOption reads --export. The job gets the environment of the submitting shell in any case.
func (t *translation) exportOption(g slurm.Given) {
	parts := strings.Split(g.Value, ",")
	if !slices.ContainsFunc(parts, func(part string) bool { return strings.EqualFold(part, "ALL") }) {
		t.slurm.note(g.Line, "not translated: %s: the job gets the environment of the shell that submits", quoted(t.readable(g.Word())))
	}
	for _, one := range parts {
		name, value, assigned := strings.Cut(one, "=")
		if assigned {
			t.setEnv(g.Line, name, value)
		}
	}
}

// Which signals are sent to what is described in docs/concepts/recovery.md.
var (
	scriptTakes = []string{"USR1", "USR2", "HUP", "INT", "QUIT", "TERM"} // ddpbatch's batch script
	agentWarns  = []string{"USR1", "USR2"}                               // passed on to workers, if launch.warn_signal says so
	agentStops  = []string{"HUP", "INT", "QUIT", "TERM"}
)

// signal keeps --signal if some process of a ddpbatch job handles it.
func (t *translation) signal(g slurm.Given) {
	w, err := slurm.ParseWarning(g.Value)
	switch name := w.Name(); {
	case err != nil:
		t.slurm.note(g.Line, "not translated: %s: %v", quoted(g.Word()), err)
	case w.Batch && slices.Contains(scriptTakes, name):
		t.slurm.put("signal", g.Value, "the batch script passes it on to the ranks, as launch.warn_signal")
	case !w.Batch && slices.Contains(agentWarns, name):
		t.slurm.put("signal", g.Value, "")
		t.launch.put("warn_signal", name, "the signal that the ranks get before the end, as in the script")
	case !w.Batch && slices.Contains(agentStops, name):
		t.slurm.put("signal", g.Value, "")
	default:
		t.slurm.note(g.Line, "not translated: %s: nothing in a ddpbatch job catches %s; use B:USR2@120",
			quoted(g.Word()), name)
	}
}

// gpusPerTask converts GPUs per task into GPUs per node, because in agent mode each node has one task.
func gpusPerTask(s *section, asked *request, g slurm.Given) {
	kind, _, typed := strings.Cut(g.Value, ":")
	n := gpuCount(g.Value)
	if _, given := asked.get("gpus-per-node"); given || n == 0 || len(asked.tasks) != 1 {
		s.note(g.Line, "not translated: %s: write gpus_per_node", quoted(g.Word()))
		return
	}
	n *= asked.tasks[0]
	why := fmt.Sprintf("%s: the ranks of a node see each other's GPUs", quoted(g.Word()))
	if typed {
		s.put("gpus_per_node", kind+":"+strconv.Itoa(n), why)
		return
	}
	s.put("gpus_per_node", n, why)
}

// countsTasks reports whether an option counts per task or socket, although in agent mode each node has only one task.
func (t *translation) countsTasks(g slurm.Given) bool {
	return t.mode() == "agent" && (g.Name == "tres-per-task" || g.Name == "gpus-per-socket")
}

// requeueKeys requeues the job if the script asks for it, and not otherwise.
func (t *translation) requeueKeys() {
	_, requeues := t.asked.get("requeue")
	_, never := t.asked.get("no-requeue")
	switch {
	case t.requeues && !never:
		t.requeue.put("on", []string{"preempt", "timeout", "node"}, "the script requeues itself; so does ddpbatch")
	case requeues && !never:
		t.requeue.put("on", []string{"preempt", "node"}, `when Slurm requeues; add "timeout" for a program that saves and resumes`)
	default:
		t.requeue.put("on", []string{}, `no requeue is requested; ["preempt", "timeout", "node"] for a program that saves and resumes`)
	}
}
