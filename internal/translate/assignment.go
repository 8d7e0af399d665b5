package translate

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// assign records the value of a variable. A possible secret never replaces its name.
func (t *translation) assign(it item, w *syntax.Word) {
	text, _ := it.value.constant()
	ofItself := slices.Contains(it.value.names(), it.name) // PATH=x:$PATH
	hidden := ofItself || isSecret(it.name, text)
	v := variable{fields: []field{it.value}, opaque: hidden || !isKnown(it.value)}
	if e := t.launcherExpander(); !hidden {
		v.flags = onlyFlags([]field{e.valueOf(w)})
	}
	t.variables[it.name] = v
}

// onlyFlags returns a value that begins as a launcher or a flag does, and nil for other values.
func onlyFlags(value []field) []field {
	if len(value) == 0 || len(value[0]) == 0 || value[0][0].dynamic {
		return nil
	}
	text := strings.TrimLeft(value[0][0].text, " \t\n\\")
	if !strings.HasPrefix(text, "-") && !mentionsLauncher(text) {
		return nil
	}
	return value
}

var referenceForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\$\{[A-Za-z_][A-Za-z0-9_]*\}$`) })

// isKnown reports whether a value consists only of text and variables, so that it may replace its name.
func isKnown(value field) bool {
	return !slices.ContainsFunc(value, func(p piece) bool {
		return p.dynamic && (!referenceForm().MatchString(p.text) || slices.ContainsFunc(p.names, isDrawn))
	})
}

// isDrawn reports whether a bash variable has another value each time that it is read, and in each rank.
func isDrawn(name string) bool {
	return slices.Contains([]string{"RANDOM", "SRANDOM", "SECONDS", "EPOCHSECONDS", "EPOCHREALTIME", "BASHPID"}, name)
}

// declaration reads export, declare, readonly, typeset and local.
func (t *translation) declaration(base item, cmd *syntax.DeclClause) []item {
	var assigns []*syntax.Assign
	exported := cmd.Variant.Value == "export"
	for _, a := range cmd.Args {
		switch {
		case a.Name == nil && a.Value != nil: // an option
			option := a.Value.Lit()
			exported = exported || strings.HasPrefix(option, "-") && strings.Contains(option, "x")
		case !a.Naked:
			assigns = append(assigns, a)
		}
	}
	if len(assigns) == 0 && exported && len(cmd.Args) > 0 {
		var items []item
		for _, a := range cmd.Args {
			if a.Naked && a.Name != nil {
				items = append(items, t.export(base, a.Name.Value))
			}
		}
		return items
	}
	return t.assignments(base, assigns, exported)
}

// export reads "export NAME" of a variable that already has a value.
func (t *translation) export(it item, name string) item {
	it.kind, it.name, it.exported, it.text, it.reads = setsVariable, name, true, "export "+name, []string{name}
	it.value = field{{text: "${" + name + "}", dynamic: true, quoted: true, names: it.reads}}
	if v, assigned := t.variables[name]; assigned && !v.opaque && !v.array {
		it.value = v.fields[0]
	}
	return it
}

func (t *translation) assignments(base item, assigns []*syntax.Assign, exported bool) (items []item) {
	for _, a := range assigns {
		it := base
		if a.Name == nil || a.Index != nil || a.Append {
			it.kind, it.reads, it.writes = runsLine, namesIn(a), nil
			if a.Name != nil {
				it.writes = []string{a.Name.Value}
				it.reads = append(it.reads, a.Name.Value)
			}
			it.text = t.source(a)
			items = append(items, it)
			continue
		}
		it.kind, it.name, it.exported, it.reads = setsVariable, a.Name.Value, exported, namesIn(a)
		it.text = t.source(a)
		it.why = t.contains(&syntax.Stmt{Position: a.Pos(), Cmd: &syntax.CallExpr{Assigns: []*syntax.Assign{a}}})
		if exported {
			it.text = "export " + it.text
		}
		if a.Array != nil {
			items = append(items, t.array(it, a.Array))
			continue
		}
		it.value = t.valueOf(a.Value)
		t.assign(it, a.Value) // the next one on the line may use it
		items = append(items, it)
	}
	return items
}

// array reads NAME=(...). Its elements are known if they are plain words.
func (t *translation) array(it item, list *syntax.ArrayExpr) item {
	v := variable{array: true}
	for _, e := range list.Elems {
		if e.Index != nil || e.Value == nil {
			v.opaque = true
			continue
		}
		v.fields = append(v.fields, t.fieldsOf([]*syntax.Word{e.Value})...)
		v.flags = append(v.flags, t.launcherExpander().fieldsOf([]*syntax.Word{e.Value})...)
	}
	v.flags = onlyFlags(v.flags)
	for _, f := range v.fields {
		text, _ := f.constant()
		if isSecret(it.name, text) {
			v.opaque, v.flags = true, nil
			break
		}
		v.opaque = v.opaque || !isKnown(f)
	}
	t.variables[it.name] = v
	it.isArray, it.inPlace, it.exported = true, !v.opaque, false
	return it
}
