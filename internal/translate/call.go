package translate

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"

	"ddpbatch/internal/torchrun"
	"ddpbatch/slurm"
)

// call reads a command with its arguments.
func (t *translation) call(it item, s *syntax.Stmt, cmd *syntax.CallExpr) []item {
	words := t.fieldsOf(cmd.Args)
	it.kind, it.reads, it.writes = runsLine, namesIn(s), assignedIn(s)
	if len(words) == 0 {
		return []item{it}
	}
	program := programOf(words)
	it.quiet = slices.Contains(quietPrograms, program)
	it.writesFile = it.quiet && slices.ContainsFunc(s.Redirs, t.writesFile)
	untranslated := func(why string) []item {
		it.kind, it.why = isUntranslated, why
		return []item{it}
	}
	switch {
	case strength(words) > notLaunched && !t.functions[program]:
		return []item{t.launchItem(it, s, cmd, words)}
	case program == "trap":
		return untranslated("a trap: ddpbatch itself warns the ranks before the end (launch.warn_signal) and requeues (requeue.on)")
	case program == "wait":
		it.kind, it.why = isLeftOut, "ddpbatch waits for its ranks"
		return []item{it}
	case s.Background:
		return untranslated("a background process")
	case torchrun.IsStarter(program):
		return untranslated("this is a separate step, but ddpbatch starts only one")
	case t.functions[program]:
		return untranslated("it calls a function of the script")
	case slices.Contains(endsShell, program):
		return untranslated("it would end the setup")
	case actsOnJobs(words):
		return untranslated(program + " acts on other jobs or machines")
	}
	if why := t.contains(s); why != "" { // in a $(...)
		return untranslated(why)
	}
	if len(s.Redirs) == 0 && len(cmd.Assigns) == 0 {
		it = t.setupItem(it, program, words)
	}
	return []item{it}
}

// writesFile reports whether a redirection creates a file, which later commands may read.
func (t *translation) writesFile(r *syntax.Redirect) bool {
	switch r.Op {
	case syntax.RdrOut, syntax.AppOut, syntax.RdrClob, syntax.RdrAll, syntax.AppAll:
		return t.source(r.Word) != "/dev/null"
	}
	return false
}

// setupItem reads commands for which [setup] has a key.
func (t *translation) setupItem(it item, program string, words []field) item {
	constants := make([]string, len(words)) // "" if only the shell knows it
	for i, w := range words {
		constants[i], _ = w.constant()
	}
	arguments := constants[1:]
	sources := program == "source" || program == "."
	whole := !slices.Contains(arguments, "") && len(arguments) > 0
	switch {
	case (program == "module" || program == "ml") && whole:
		return moduleItem(it, program, arguments)
	case program == "cd" && len(arguments) == 1:
		it.kind, it.value = changesDir, words[1]
	case sources && len(arguments) == 1 && strings.HasSuffix(suffix(words[1]), "/bin/activate"):
		folder, ok := t.path(words[1])
		if folder = strings.TrimSuffix(folder, "/bin/activate"); ok && fits(slurm.Setup{Venv: folder}, folder) {
			it.kind, it.folder = entersVenv, folder
		}
	case sources && whole && len(arguments) == 2 && arguments[0] == "activate",
		(program == "conda" || program == "mamba") && whole && len(arguments) == 2 && arguments[0] == "activate":
		if fits(slurm.Setup{Conda: arguments[1]}, arguments[1]) {
			it.kind, it.folder = entersConda, arguments[1]
		}
	case program == "eval" && condaHook().MatchString(it.text):
		it.kind = hooksConda
	case sources && whole && slices.Contains(moduleFiles, arguments[0]):
		it.kind, it.why = isLeftOut, `ddpbatch looks for "module" there itself`
	}
	return it
}

var condaHook = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`conda['"]? +['"]?shell\.(?:bash|posix)['"]? +['"]?hook`)
})

// moduleFiles define "module"; the batch script reads them if it is not defined.
var moduleFiles = []string{"/etc/profile.d/modules.sh", "/etc/profile.d/lmod.sh", "/etc/profile.d/z00_lmod.sh"}

// fits reports whether a setup with these texts is valid in a job file.
func fits(setup slurm.Setup, texts ...string) bool {
	return setup.Validate() == nil && !slices.ContainsFunc(texts, func(text string) bool { return !isLine(text) })
}

// moduleWords are words that ml takes for commands of module, and not for names of modules.
var moduleWords = strings.Fields("purge use unuse unload swap restore reset save spider show help")

// moduleItem reads a line of module, or of its short form ml.
func moduleItem(it item, program string, arguments []string) item {
	switch {
	case arguments[0] == "load" || arguments[0] == "add":
		arguments = arguments[1:]
	case arguments[0] == "list" || arguments[0] == "avail":
		it.quiet = true
		return it
	case program == "module" || slices.Contains(moduleWords, arguments[0]):
		it.purges = slices.Contains(arguments, "purge")
		return it
	}
	if len(arguments) > 0 && fits(slurm.Setup{Modules: arguments}, arguments...) {
		it.kind, it.modules = loadsModules, arguments
	}
	return it
}

// suffix returns the constant end of a word.
func suffix(f field) string {
	if len(f) == 0 || f[len(f)-1].dynamic {
		return ""
	}
	return f[len(f)-1].text
}

// path returns a word as a path of a job file, where ~ is the only variable part.
func (t *translation) path(f field) (string, bool) {
	home := ""
	if len(f) > 0 && f[0].dynamic && (f[0].text == "${HOME}" || f[0].text == "$HOME") {
		home, f = "~", f[1:]
		if len(f) > 0 && !strings.HasPrefix(f[0].text, "/") {
			return "", false
		}
	}
	text, ok := f.constant()
	if !ok || home == "" && (text == "" || text[0] == '~') {
		return "", false
	}
	return home + text, isLine(home + text)
}

// launchItem reads a command that may be the launch line.
func (t *translation) launchItem(it item, s *syntax.Stmt, cmd *syntax.CallExpr, words []field) item {
	if inFlags := t.launcherFields(cmd.Args); strength(inFlags) == fromLauncher {
		words = inFlags
	}
	it.kind, it.words, it.strength = mayLaunch, words, strength(words)
	it.prefix = t.assignmentsAlone(it, cmd.Assigns)
	it.apart = s.Background
	var in, out []string
	for _, r := range s.Redirs {
		if strings.HasPrefix(r.Op.String(), "<") {
			in = append(in, t.source(r))
			continue
		}
		out = append(out, t.source(r))
	}
	if len(in) > 0 {
		it.notes = append(it.notes, "not translated: "+quoted(strings.Join(in, " "))+": the ranks' standard input is empty")
	}
	if len(out) > 0 {
		it.notes = append(it.notes, "left out: "+quoted(strings.Join(out, " "))+": the ranks' output is in the run directory")
	}
	return it
}

// launcherFields expands the words of a launcher. The words before its script or module are flags, which the launcher reads and the ranks
// do not. In them, variables are replaced by their values even if only the job knows a part of these.
func (t *translation) launcherFields(list []*syntax.Word) (all []field) {
	e := t.launcherExpander()
	launched := false
	for _, w := range list {
		fields := e.fieldsOf([]*syntax.Word{w})
		for _, f := range fields {
			text := f.static()
			if strings.HasSuffix(text, ".py") || launched && (text == "-m" || text == "--module") {
				e.flags = false
			}
			launched = launched || mentionsLauncher(text)
		}
		all = append(all, fields...)
	}
	return all
}

// assignmentsAlone reads the variables before a command, which are set only for that command.
func (t *translation) assignmentsAlone(it item, assigns []*syntax.Assign) []item {
	before := make(map[string]variable, len(t.variables))
	for name, v := range t.variables {
		before[name] = v
	}
	it.notes = nil
	items := t.assignments(it, assigns, true)
	t.variables = before
	return items
}
