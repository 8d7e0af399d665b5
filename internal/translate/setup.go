package translate

import (
	"fmt"
	"slices"
	"strings"

	"ddpbatch/slurm"
)

// ownVariables are those that ddpbatch sets for each rank.
var ownVariables = strings.Fields("MASTER_ADDR MASTER_PORT WORLD_SIZE RANK LOCAL_RANK LOCAL_WORLD_SIZE " +
	"GROUP_RANK NODE_RANK ROLE_RANK NCCL_COMM_ID")

// visibleDevices select the GPUs also for the agent, which does not get the variables of [setup] env.
var visibleDevices = strings.Fields("CUDA_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES HIP_VISIBLE_DEVICES")

// setupOf writes [setup] from the statements before the launch line, which needs the given variables.
func (t *translation) setupOf(items []item, needed []string) {
	lines := liveItems(items, needed)
	var script []string
	ordered := false // a line that later ones may depend on is in script, which runs after modules, venv and conda
	add := func(it item, text string, decides bool) {
		if err := (slurm.Setup{Script: []string{text}}).Validate(); err != nil {
			t.setup.note(it.line, "not translated: %s: %v", quoted(text), err)
			return
		}
		script = append(script, text)
		ordered = ordered || decides
	}
	for i, it := range lines {
		switch {
		case it.kind == isLeftOut:
			t.setup.note(it.line, "left out: %s: %s", quoted(it.text), it.why)
		case it.kind == isUntranslated:
			t.setup.note(it.line, "not translated: %s: %s", quoted(it.text), it.why)
		case it.kind == changesDir:
			t.changeDir(it, len(script) > 0)
		case it.kind == setsVariable:
			t.setVariable(it, usedLater(lines[i+1:], it.name), needed, func(text string) {
				add(it, text, slices.Contains(searchPaths, it.name))
			})
		case holdsSecret(it.text):
			t.setup.note(it.line, "not copied: %s: it may hold a secret", quoted(it.text))
			t.withhold(it.line, "a command")
		case it.kind == loadsModules && !ordered && t.venv == "" && t.conda == "":
			t.modules = append(t.modules, it.modules...)
		case it.kind == entersVenv && !ordered && t.venv == "" && t.conda == "":
			t.venv = it.folder
		case it.kind == entersConda && !ordered && t.venv == "" && t.conda == "":
			t.conda = it.folder
		case it.kind == hooksConda && !ordered && hasConda(lines[i+1:]):
			t.setup.note(it.line, "left out: %s: setup.conda does that", quoted(it.text))
		default:
			if it.purges && !ordered { // setup.modules would run before it, and the modules would be unloaded again
				t.setup.note(it.line, "%s has no key: it stays a line of script, and so does what must come after it", quoted(it.text))
			}
			add(it, it.text, !it.quiet)
		}
	}
	if len(t.modules) > 0 {
		t.setup.put("modules", t.modules, "")
	}
	if t.venv != "" {
		t.setup.put("venv", t.venv, "")
	}
	if t.conda != "" {
		t.setup.put("conda", t.conda, "")
	}
	if len(script) > 0 {
		t.setup.put("script", script, "unchanged lines of the script; if one fails, the job ends")
	}
}

// searchPaths are variables that decide what later lines find.
var searchPaths = strings.Fields("PATH LD_LIBRARY_PATH PYTHONPATH MODULEPATH CONDA_EXE CONDA_PREFIX CONDA_ENVS_PATH")

// hasConda reports whether a conda environment is entered later, before any line that is not quiet.
func hasConda(items []item) bool {
	for _, it := range items {
		if it.kind == entersConda || it.kind == runsLine && !it.quiet {
			return it.kind == entersConda
		}
	}
	return false
}

// usedLater reports whether a remaining line reads a variable, may do so by sourcing a file, or may change it.
func usedLater(items []item, name string) bool {
	return slices.ContainsFunc(items, func(it item) bool {
		return it.kind == runsLine && (slices.Contains(it.reads, name) || slices.Contains(it.writes, name) || !it.quiet &&
			name != "" && readsFile(it.text)) ||
			it.kind == setsVariable && slices.Contains(it.reads, name) && !isFixed(it)
	})
}

func readsFile(text string) bool {
	return strings.HasPrefix(text, "source ") || strings.HasPrefix(text, ". ") || strings.HasPrefix(text, "eval ")
}

// isFixed reports whether the value of a variable is known.
func isFixed(it item) bool {
	_, fixed := it.value.constant()
	return fixed && !it.isArray
}

// liveItems leaves out what ddpbatch does itself, and variables that are no longer needed. The launch line needs those in needed.
func liveItems(items []item, needed []string) []item {
	wanted, dropped := map[string]bool{}, map[string]bool{}
	for _, name := range needed {
		wanted[name] = true
	}
	kept := slices.Clone(items)
	for i := len(kept) - 1; i >= 0; i-- {
		it := &kept[i]
		if it.kind == setsVariable {
			it.kind, it.why = fateOf(*it, wanted[it.name])
			dropped[it.name] = dropped[it.name] || it.kind == isLeftOut || it.kind == isUntranslated
		}
		if it.kind == setsVariable && !isFixed(*it) || it.kind == runsLine && (!it.quiet || it.writesFile) {
			for _, name := range it.reads {
				wanted[name] = true
			}
		}
	}
	for i := range kept { // a variable that is only printed is not needed
		it := &kept[i]
		if it.kind != runsLine || !it.quiet {
			continue
		}
		for _, name := range it.reads {
			switch {
			case !dropped[name]:
			case it.writesFile && slices.Contains(ownVariables, name):
				it.kind, it.why = isUntranslated, "it writes "+name+", which only ranks have"
			case it.writesFile:
				it.kind, it.why = isUntranslated, "it writes "+name+", which the job does not set"
			default:
				it.kind, it.why = isLeftOut, "it prints a variable that is left out"
			}
		}
		for j := range kept[:i] {
			if kept[j].kind != isInPlace || it.kind != runsLine || !slices.Contains(it.reads, kept[j].name) {
				continue
			}
			if kept[j].isArray {
				it.kind, it.why = isLeftOut, "it prints what is in launch.command"
				break
			}
			kept[j].kind = setsVariable
		}
	}
	return slices.DeleteFunc(kept, func(it item) bool { return it.kind == isInPlace })
}

// fateOf decides what becomes of a variable, and why.
func fateOf(it item, wanted bool) (itemKind, string) {
	switch {
	case slices.Contains(ownVariables, it.name):
		return isLeftOut, "ddpbatch sets it for each rank"
	case mentionsLauncher(it.value.static()) && wanted:
		return isUntranslated, "it holds a launcher: launch.command is what one rank runs"
	case mentionsLauncher(it.value.static()):
		return isLeftOut, "launch.command contains it"
	case !it.exported && !wanted && (isFixed(it) || it.isArray && it.inPlace):
		return isInPlace, ""
	case !it.exported && !wanted:
		return isLeftOut, "it is not needed here"
	case it.why != "": // it contains a step of srun, for example
		return isUntranslated, it.why
	}
	return setsVariable, ""
}

// setVariable writes a variable to [setup]: to env if its value is known and only ranks need it, and otherwise to the script.
func (t *translation) setVariable(it item, isUsed bool, needed []string, add func(string)) {
	text, _ := it.value.constant()
	fixed := isFixed(it)
	forRanks := it.exported || slices.Contains(needed, it.name)
	static := it.value.static()
	switch {
	case isSecret(it.name, static), holdsSecret(static), it.isArray && holdsSecret(it.text):
		t.notCopied(it.line, it.name)
	case fixed && forRanks && !isUsed && !slices.Contains(visibleDevices, it.name):
		t.setEnv(it.line, it.name, text)
	case fixed && strings.Contains(it.text, "$"): // its variables are known only here
		text := it.name + "=" + shellText(it.value)
		if forRanks {
			text = "export " + text
		}
		add(text)
	case !it.exported && forRanks && !it.isArray:
		add("export " + it.text)
	default:
		add(it.text)
	}
}

// keepSecret says how a job gets a secret, in the words of check.
func keepSecret(name string) string {
	return `keep it in a file that only you can read, and have setup.script read it: "export ` + name + `=$(cat FILE)"`
}

// withhold records something that is not copied, because it may be a secret.
func (t *translation) withhold(line int, what string) {
	if line > 0 {
		what += fmt.Sprintf(" (line %d)", line)
	}
	if !slices.Contains(t.withheld, what) {
		t.withheld = append(t.withheld, what)
	}
}

func (t *translation) notCopied(line int, name string) {
	t.setup.note(line, "not copied: %s, because it may be a secret: %s", quoted(name), keepSecret(quoted(name)))
	t.withhold(line, quoted(name))
}

// setEnv writes a variable of the ranks to [setup.env].
func (t *translation) setEnv(line int, name, value string) {
	switch {
	case slices.Contains(ownVariables, name):
		t.setup.note(line, "left out: %s: ddpbatch sets it for each rank", quoted(name+"="+value))
	case isSecret(name, value) || holdsSecret(value):
		t.notCopied(line, name)
	case !variableForm().MatchString(name):
		t.setup.note(line, "not translated: %s is not a valid name of a variable", quoted(name))
	default:
		t.env.put(name, value, "")
	}
}

// changeDir makes a directory the working directory.
func (t *translation) changeDir(it item, afterLines bool) {
	folder, ok := t.path(it.value)
	if len(it.value) > 0 && it.value[0].dynamic && it.value[0].text == "${SLURM_SUBMIT_DIR}" {
		rest, fixed := it.value[1:].constant()
		if ok = fixed && (rest == "" || rest[0] == '/') && isLine("."+rest); ok {
			folder = "." + rest
			t.workdir = ""
		}
	}
	if !ok || strings.HasPrefix(folder, "-") {
		t.top.note(it.line, "not translated: %s: set workdir", quoted(it.text))
		return
	}
	t.moveTo(folder)
	if afterLines || t.venv != "" && !strings.ContainsAny(t.venv[:1], "/~") {
		t.setup.note(it.line, "%s becomes workdir, also for the lines before it in the script: check relative paths", quoted(it.text))
	}
}

// withExports exports the variables that the command needs and only a line of the setup sets, as "if ...; then NAME=...; fi" does.
func withExports(items []item, command, needed []string) []item {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(needed))) {
		set := slices.ContainsFunc(items, func(it item) bool { return it.kind == setsVariable && it.name == name }) // and exported there
		setter := slices.IndexFunc(items, func(it item) bool { return it.kind == runsLine && slices.Contains(it.writes, name) })
		if !set && setter >= 0 && !strings.Contains(items[setter].text, "export "+name) && !holdsSecret(items[setter].text) &&
			!isArray(items, command, name) {
			items = append(items, item{kind: runsLine, line: items[setter].line, text: "export " + name, reads: []string{name}})
		}
	}
	return items
}

// withArrays passes the arrays that a command reads, which is a bash script, on to the ranks, because a shell cannot pass arrays to
// programs. A last line of the setup turns each into a text, which the command reads back.
func (t *translation) withArrays(items []item, command, needed []string) ([]item, []string) {
	script := command[len(command)-1]
	var read []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(needed))) {
		if !isArray(items, command, name) || !slices.ContainsFunc(items, func(it item) bool { return setsArray(it, name) }) {
			continue
		}
		text := name + "_ARRAY"
		items = append(items, item{kind: runsLine, line: t.line.line, text: "export " + text + "=$(declare -p " + name + ")",
			reads: []string{name}})
		read = append(read, `eval "$`+text+`"`)
		t.launch.note(t.line.line, "%s comes from setup.script as %s, because a shell cannot pass arrays to programs", name, text)
	}
	command[len(command)-1] = strings.Join(append(read, script), "\n")
	return items, command
}

// isArray reports whether a variable is an array, by the statements that set it or by the command, a bash script that reads it.
func isArray(items []item, command []string, name string) bool {
	script := command[len(command)-1]
	return strings.Contains(script, "{"+name+"[") || strings.Contains(script, "{#"+name+"[") ||
		slices.ContainsFunc(items, func(it item) bool { return it.isArray && it.name == name })
}

// setsArray reports whether a statement sets an array, and stays in the setup.
func setsArray(it item, name string) bool {
	sets := it.kind == setsVariable && it.isArray && it.name == name && it.why == "" ||
		it.kind == runsLine && slices.Contains(it.writes, name)
	return sets && !holdsSecret(it.text)
}
