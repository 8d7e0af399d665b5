package translate

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	words "ddpbatch/internal/text"
	"ddpbatch/slurm"
)

// job writes the job file.
func (t *translation) job(at int, o Options) Result {
	l := &t.line
	t.at = at
	if g, given := t.asked.get("chdir"); given {
		t.moveTo(g.Value)
	}
	before := slices.Concat(t.items[:at], t.items[at].prefix, t.inner)
	for i := range before {
		if before[i].kind == mayLaunch {
			before[i] = t.notTheLaunchLine(before[i])
		}
		if before[i].holds >= fromOneTask {
			before[i].why = t.otherLaunch(before[i])
		}
	}
	t.cutAtColon()
	command, needed := t.commandWords(l)
	if len(needed) > 0 {
		before = withExports(before, command, needed)
		before, command = t.withArrays(before, command, needed)
	}
	t.setupOf(before, needed)
	hint := ": launch.on_end names a command that runs once when the run has ended"
	for _, it := range t.items[at+1:] {
		if it.kind == isLeftOut {
			t.setup.note(it.line, "left out: %s: %s", quoted(it.text), it.why)
			continue
		}
		if strings.HasPrefix(it.text+" ", "exit ") {
			t.setup.note(it.line, "left out: %s: the job ends with the exit code of its ranks", quoted(it.text))
			continue
		}
		why := "it comes after the launch line" + hint
		if it.holds >= fromOneTask {
			why = t.otherLaunch(it)
		} else {
			hint = ""
		}
		t.setup.note(it.line, "not translated: %s: %s", quoted(it.text), why)
	}
	for _, v := range l.env {
		t.setEnv(l.line, v.name, t.readable(v.value))
	}
	t.topKeys(o)
	t.rankKeys()
	t.launchKeys(command)
	t.containerKeys(o.Base)
	t.slurmKeys()
	t.requeueKeys()
	return t.write(o)
}

// notTheLaunchLine decides what becomes of another command that might have been the launch line.
func (t *translation) notTheLaunchLine(it item) item {
	if it.strength >= fromOneTask {
		it.kind, it.why = isUntranslated, fmt.Sprintf("a job has only one launch line, which is line %d", t.line.line)
		if it.strength == fromOneTask && !it.apart {
			it.why += "; to run this before the ranks, once at each start on the job's first node, write it without srun into setup.script"
		}
		return it
	}
	if it.apart {
		it.kind, it.why = isUntranslated, "a background process"
		return it
	}
	it.kind = runsLine
	return it
}

// otherLaunch says why a compound statement with a launch line is left out.
func (t *translation) otherLaunch(it item) string {
	why := fmt.Sprintf("a %s with a launch line, but a job has only one, which is line %d", it.shape, t.line.line)
	if it.why == loopNote {
		why += strings.TrimPrefix(loopNote, "a loop")
	}
	return why
}

func needs(list []field) (names []string) {
	for _, f := range list {
		names = append(names, f.names()...)
	}
	return names
}

// commandWords returns launch.command. If only the shell knows some word, the command becomes a bash script.
func (t *translation) commandWords(l *launch) (command, needed []string) {
	var fields []field
	dynamic := false
	for _, word := range l.command {
		f := t.decode(word)
		_, fixed := f.constant()
		dynamic = dynamic || !fixed
		fields = append(fields, f)
		for _, p := range f {
			if p.dynamic && !p.inRanks && isOnce(p) {
				l.notes = append(l.notes, "not translated: "+quoted(p.text)+
					": each rank would do this, but the script does it once: set it in setup.script")
			}
		}
	}
	needed = needs(fields)
	for _, f := range fields {
		text, _ := f.constant()
		if dynamic {
			text = shellText(f)
		}
		command = append(command, text)
	}
	if shown, found := withoutSecrets(command); found {
		l.notes = append(l.notes, t.secretNote(command, shown, dynamic))
		command = shown
	}
	if dynamic {
		return []string{"bash", "-c", "exec " + strings.Join(command, " ")}, needed
	}
	return command, needed
}

// secretNote says what of a command is not copied, and how to write it instead. shown is what is copied. isShell reports whether the words
// are those of a shell, which quotes them.
func (t *translation) secretNote(command, shown []string, isShell bool) string {
	line, canShow := []string{"exec"}, true
	var flags, names []string
	for i, word := range shown {
		flag, _, assigned := strings.Cut(word, "=")
		switch {
		case word == command[i]:
			if !isShell {
				word = slurm.ShellQuote(word)
			}
			line = append(line, word)
			continue
		case assigned:
			word = flag + "="
		case strings.ContainsAny(command[i], " \n") || i == 0 || !strings.HasPrefix(shown[i-1], "-"):
			flag, canShow = "a word of the command", false
		default:
			flag, word = shown[i-1], ""
		}
		of := strings.ToUpper(strings.ReplaceAll(strings.TrimLeft(flag, "-"), "-", "_"))
		if !variableForm().MatchString(of) {
			of = "NAME"
		}
		if !slices.Contains(names, of) {
			names = append(names, of)
		}
		line = append(line, word+`"$`+of+`"`)
		flags = append(flags, quoted(flag))
		t.withhold(t.line.line, quoted(flag))
	}
	note := "not copied: " + strings.Join(flags, ", ") + " (*** in the command), because the value may be a secret: " + keepSecret(names[0])
	for _, of := range names[1:] {
		note += `, "export ` + of + `=$(cat FILE)"`
	}
	if canShow {
		note += `; then write command = ["bash", "-c", ` + tomlString(strings.Join(line, " ")) + "]"
	}
	return note
}

// isOnce reports whether evaluating a piece runs a program, or has different results in different ranks.
func isOnce(p piece) bool {
	return strings.Contains(strings.ReplaceAll(p.text, "$((", ""), "$(") || strings.Contains(p.text, "`") ||
		slices.ContainsFunc(p.names, isDrawn)
}

// topKeys are the keys outside all tables.
func (t *translation) topKeys(o Options) {
	t.top.put("schema", 1, "")
	name, line, comment := o.Name, 0, "the name of the script, which is Slurm's default without --job-name"
	if t.isCommand {
		name, comment = programName(t.line.command), ""
	}
	if g, given := t.asked.get("job-name"); given {
		name, line, comment = g.Value, g.Line, ""
	}
	t.top.put("name", jobName(name), comment)
	if line > 0 && jobName(name) != name {
		t.top.note(line, "%s has characters that are not permitted in a name here", quoted("--job-name="+name))
	}
	workdir := o.Base
	if t.workdir != "" {
		workdir = t.workdir
		if !filepath.IsAbs(workdir) && workdir[0] != '~' {
			workdir = path.Join(o.Base, workdir)
		}
	}
	if !isLine(workdir) {
		t.top.note(0, "not translated: the working directory, which is not one line of text")
		workdir = "."
	}
	t.top.put("workdir", workdir, "where ranks run; relative to this file")
	t.top.put("run_dir", "runs", "on a file system that all nodes share")
}

// programName returns the name of a command: its Python script or module, or its program.
func programName(command []string) string {
	name := command[0]
	for i, word := range command {
		if strings.HasSuffix(word, ".py") {
			name = strings.TrimSuffix(word, ".py")
			break
		}
		if word == "-m" && i+1 < len(command) {
			name = command[i+1][strings.LastIndexByte(command[i+1], '.')+1:]
			break
		}
	}
	return path.Base(name)
}

// jobName turns a text with other characters into a valid name.
func jobName(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (r == '.' || r == '_' || r == '-' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z') {
			return r
		}
		return '-'
	}, name)
	const most = 64
	if name = strings.TrimLeft(name, ".-"); name == "" {
		return "job"
	}
	return name[:min(len(name), most)]
}

// isLine reports whether a text is one line that does not affect a terminal.
func isLine(s string) bool { return s != "" && !strings.ContainsFunc(s, words.Unsafe) }

// A namedSection is a table and its header.
type namedSection struct {
	head string // "[slurm]"; "": none
	*section
}

// write combines the tables.
func (t *translation) write(o Options) Result {
	var b strings.Builder
	untranslated := 0
	tables := []namedSection{{"", &t.top}, {"[slurm]", &t.slurm}}
	for i, c := range t.components {
		tables = append(tables, namedSection{fmt.Sprintf("[[slurm.component]]  # component %d", i+1), &c.section})
	}
	tables = append(tables, namedSection{"[setup]", &t.setup}, namedSection{"[setup.env]", &t.env},
		namedSection{"[container]", &t.container}, namedSection{"[launch]", &t.launch}, namedSection{"[requeue]", &t.requeue})
	for _, s := range tables {
		s.write(&b, s.head)
		for _, n := range s.notes {
			if strings.HasPrefix(n.text, "not translated: ") {
				untranslated++
			}
		}
	}
	head := "# Made from " + comment(o.Source) + " by \"ddpbatch init --from\".\n"
	if len(t.withheld) > 0 {
		head += "# Not copied, because they may be secrets: " + comment(strings.Join(t.withheld, ", ")) + ".\n"
	}
	if untranslated > 0 {
		head += "# Comments below describe " + words.Plural(untranslated, "part") + " of it that could not be translated.\n"
	}
	return Result{Text: head + "\n" + b.String(), Untranslated: untranslated, NotCopied: t.withheld}
}
