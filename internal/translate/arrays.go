package translate

import (
	"slices"
	"strings"
)

// withArrays hands the arrays that a command reads, which is a script of bash's, on to the ranks: a shell gives programs no arrays. A last
// line of the setup makes a text of each, and the command reads that back.
func (t *translation) withArrays(items []item, command, needed []string) ([]item, []string) {
	script := command[len(command)-1]
	var read []string
	for _, name := range slices.Compact(slices.Sorted(slices.Values(needed))) {
		isArray := strings.Contains(script, "{"+name+"[") || strings.Contains(script, "{#"+name+"[") ||
			slices.ContainsFunc(items, func(it item) bool { return it.isArray && it.name == name })
		if !isArray || !slices.ContainsFunc(items, func(it item) bool { return setsArray(it, name) }) {
			continue
		}
		text := name + "_ARRAY"
		items = append(items, item{kind: runsLine, line: t.line.line, text: "export " + text + "=$(declare -p " + name + ")", reads: []string{name}})
		read = append(read, `eval "$`+text+`"`)
		t.launch.note(t.line.line, "%s comes from setup.script as %s: no program gets an array of the shell's", name, text)
	}
	command[len(command)-1] = strings.Join(append(read, script), "\n")
	return items, command
}

// setsArray reports whether a statement sets an array, and stays in the setup.
func setsArray(it item, name string) bool {
	sets := it.kind == setsVariable && it.isArray && it.name == name && it.why == "" ||
		it.kind == runsLine && slices.Contains(it.writes, name)
	return sets && !holdsSecret(it.text)
}
