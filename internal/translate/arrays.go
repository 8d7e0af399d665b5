package translate

import (
	"slices"
	"strings"
)

// withArrays puts before a command, which is a script of bash's, the lines that set the arrays it reads: a shell hands no arrays to
// programs, so that those of the batch script do not reach the ranks. What the lines read is needed instead.
func (t *translation) withArrays(items []item, command, needed []string) ([]string, []string) {
	script := command[len(command)-1]
	isArray := func(name string) bool {
		return strings.Contains(script, "{"+name+"[") || strings.Contains(script, "{#"+name+"[") ||
			slices.ContainsFunc(items, func(it item) bool { return it.isArray && it.name == name })
	}
	arrays := map[string]bool{}
	scalars := addNames(arrays, nil, needed, isArray)
	if len(arrays) == 0 {
		return command, needed
	}
	var lines []string
	var moved []int
	for i := len(items) - 1; i >= 0; i-- {
		it := items[i]
		sets := it.kind == setsVariable && it.isArray && arrays[it.name] ||
			it.kind == runsLine && slices.ContainsFunc(it.writes, func(name string) bool { return arrays[name] })
		switch {
		case !sets:
		case holdsSecret(it.text):
			t.setup.note(it.line, "not copied, as it may hold a secret: %s", quoted(it.text))
		default:
			t.launch.note(it.line, "%s is in launch.command: no program gets an array of the shell's", quoted(it.text))
			lines, moved = append(lines, it.text), append(moved, i)
			scalars = addNames(arrays, scalars, it.reads, isArray)
		}
	}
	slices.Reverse(lines)
	stays := func(i int) bool { // a line of the setup reads them, too
		it := items[i]
		return !slices.Contains(moved, i) && (it.kind == setsVariable || it.kind == runsLine && (!it.quiet || it.writesFile)) &&
			slices.ContainsFunc(it.reads, func(name string) bool { return arrays[name] })
	}
	for i := range items {
		if stays(i) {
			moved = nil
		}
	}
	for _, i := range moved {
		items[i].kind, items[i].isArray = isInPlace, true
	}
	command[len(command)-1] = strings.Join(append(lines, script), "\n")
	return command, scalars
}

// addNames adds names to the set of arrays, or else to a list.
func addNames(arrays map[string]bool, others, names []string, isArray func(string) bool) []string {
	for _, name := range names {
		if isArray(name) {
			arrays[name] = true
			continue
		}
		others = append(others, name)
	}
	return others
}
