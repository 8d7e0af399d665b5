package translate

import (
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A piece is a part of a word after expansion.
type piece struct {
	text    string   // its value, or the shell's text for it if the value is known only when the job runs
	dynamic bool     // text is shell text
	quoted  bool     // a dynamic piece is not split into words
	inRanks bool     // of a dynamic piece: in the script, too, each rank evaluates it
	names   []string // the variables in a dynamic piece
	fixed   string   // of a variable that ddpbatch sets for each rank: the value that the script sets
}

// A field is one word that a program gets, in pieces.
type field []piece

// constant returns the word if it has no dynamic piece.
func (f field) constant() (string, bool) {
	var b strings.Builder
	for _, p := range f {
		if p.dynamic {
			return "", false
		}
		b.WriteString(p.text)
	}
	return b.String(), true
}

// static returns the known pieces of a field, joined.
func (f field) static() string {
	var b strings.Builder
	for _, p := range f {
		if !p.dynamic {
			b.WriteString(p.text)
		}
	}
	return b.String()
}

// names returns the variables that a field needs when the job runs.
func (f field) names() (names []string) {
	for _, p := range f {
		names = append(names, p.names...)
	}
	return names
}

// A variable is what a script has assigned so far.
type variable struct {
	fields []field // one, or the elements of an array
	array  bool
	opaque bool    // its value is known only when the job runs, or must not be copied
	flags  []field // the value as flags of a launcher, even if only the job knows a part of it; nil: it holds no flags
}

// An expander expands words as a shell does, as far as their text determines the result.
type expander struct {
	src       string // the text that contains the words
	variables map[string]variable
	known     func(name string) (value string, isSet, isKnown bool) // what Slurm will have set
	expanded  *int                                                  // number of bytes of expanded variables so far
	flags     bool                                                  // possible flags of a launcher replace the variable's name
}

// maxExpanded limits the size of expanded variables: with B=$A$A, C=$B$B and so on, it doubles with each line. Beyond it variables stay
// unexpanded.
const maxExpanded = 256 << 10

// fieldsOf expands words that are arguments of a command.
func (e *expander) fieldsOf(words []*syntax.Word) []field {
	var b fieldBuilder
	for _, w := range words {
		e.parts(&b, w.Parts, false, true)
		b.end()
	}
	return b.done
}

// valueOf expands the value of an assignment, which is one field.
func (e *expander) valueOf(w *syntax.Word) field {
	if w == nil {
		return nil
	}
	b := fieldBuilder{whole: true}
	e.parts(&b, w.Parts, false, true)
	return b.field
}

// fieldBuilder combines pieces into fields.
type fieldBuilder struct {
	done  []field
	field field
	begun bool
	whole bool // blanks do not separate fields
}

func (b *fieldBuilder) add(p piece) {
	b.field, b.begun = append(b.field, p), true
}

func (b *fieldBuilder) end() {
	if b.begun {
		b.done = append(b.done, b.field)
	}
	b.field, b.begun = nil, false
}

// split adds the value of an unquoted variable, which is split at blanks.
func (b *fieldBuilder) split(f field) {
	for _, p := range f {
		if p.dynamic || b.whole {
			b.add(p)
			continue
		}
		for i, text := range strings.FieldsFunc(p.text+"\x00", isBlank) { // the NUL keeps a blank at the end
			if i > 0 || strings.TrimLeft(p.text, " \t\n") != p.text {
				b.end()
			}
			if text = strings.TrimSuffix(text, "\x00"); text != "" {
				b.add(piece{text: text})
			}
		}
	}
}

func isBlank(r rune) bool { return r == ' ' || r == '\t' || r == '\n' }

func (e *expander) parts(b *fieldBuilder, parts []syntax.WordPart, quoted, atStart bool) {
	for i, part := range parts {
		switch p := part.(type) {
		case *syntax.Lit:
			e.literal(b, p, quoted, atStart && i == 0)
		case *syntax.SglQuoted:
			if p.Dollar {
				e.dynamic(b, p, false)
				continue
			}
			b.add(piece{text: p.Value})
		case *syntax.DblQuoted:
			b.begun = b.begun || !isAll(p)
			e.parts(b, p.Parts, true, false)
		case *syntax.ParamExp:
			e.parameter(b, p, quoted)
		case *syntax.ArithmExp:
			if n, ok := e.arithmetic(p.X); ok {
				b.add(piece{text: strconv.FormatInt(n, 10)})
				continue
			}
			e.dynamic(b, p, quoted)
		default:
			e.dynamic(b, part, quoted)
		}
	}
}

// isAll reports whether a quoted text is exactly "${array[@]}", which may expand to no word at all.
func isAll(q *syntax.DblQuoted) bool {
	if len(q.Parts) != 1 {
		return false
	}
	p, ok := q.Parts[0].(*syntax.ParamExp)
	return ok && (isEach(p, true) || p.Param != nil && p.Param.Value == "@")
}

// isEach reports whether a parameter means all elements of an array: ${array[@]} or, without quotes, ${array[*]}.
func isEach(p *syntax.ParamExp, quoted bool) bool {
	w, ok := p.Index.(*syntax.Word)
	return ok && (w.Lit() == "@" || w.Lit() == "*" && !quoted)
}

// dynamic adds a piece that only the shell can evaluate.
func (e *expander) dynamic(b *fieldBuilder, n syntax.Node, quoted bool) {
	b.add(piece{text: e.text(n), dynamic: true, quoted: quoted, names: namesIn(n)})
}

// text returns the source of a node.
func (e *expander) text(n syntax.Node) string {
	from, to := int(n.Pos().Offset()), int(n.End().Offset())
	if from < 0 || to > len(e.src) || from > to {
		return ""
	}
	return e.src[from:to]
}

// namesIn returns the variables that a node reads.
func namesIn(n syntax.Node) (names []string) {
	syntax.Walk(n, func(n syntax.Node) bool {
		switch p := n.(type) {
		case *syntax.ParamExp:
			if p.Param != nil {
				names = append(names, p.Param.Value)
			}
		case *syntax.ArithmExp: // names without a dollar
			syntax.Walk(p.X, func(n syntax.Node) bool {
				if lit, ok := n.(*syntax.Lit); ok && syntax.ValidName(lit.Value) {
					names = append(names, lit.Value)
				}
				return true
			})
		}
		return true
	})
	return names
}

// literal adds literal text, and handles backslashes, the home directory, and patterns of file names.
func (e *expander) literal(b *fieldBuilder, lit *syntax.Lit, quoted, atStart bool) {
	raw := lit.Value
	if quoted {
		b.add(piece{text: unescape(raw, "$`\"\\")})
		return
	}
	if atStart && (raw == "~" || strings.HasPrefix(raw, "~/")) {
		b.add(homePiece)
		raw = raw[1:]
	}
	if raw == "" {
		return
	}
	if namesFiles(raw) || atStart && raw[0] == '~' {
		b.add(piece{text: raw, dynamic: true})
		return
	}
	b.add(piece{text: unescape(raw, "")})
}

// homePiece is the home directory of the user who runs the job.
var homePiece = piece{text: "${HOME}", dynamic: true, quoted: true, names: []string{"HOME"}}

// namesFiles reports whether a shell would match file names with a text, or expand it to several words. Brackets alone, as in Hydra's
// devices=[0,1], are not meant as a pattern.
func namesFiles(raw string) bool {
	open, list := false, false
	for i := 0; i < len(raw); i++ {
		switch raw[i] {
		case '\\':
			i++
		case '*', '?':
			return true
		case '{':
			open, list = true, false
		case ',':
			list = true
		case '.':
			list = list || strings.HasPrefix(raw[i:], "..")
		case '}':
			if open && list {
				return true
			}
		}
	}
	return false
}

// unescape removes the backslashes before the characters in only, or before all characters if only is empty.
func unescape(raw, only string) string {
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		if raw[i] == '\\' && i+1 < len(raw) && (only == "" || strings.IndexByte(only, raw[i+1]) >= 0) {
			i++
		}
		b.WriteByte(raw[i])
	}
	return b.String()
}

// parameter adds the value of a variable if it is known.
func (e *expander) parameter(b *fieldBuilder, p *syntax.ParamExp, quoted bool) {
	if p.Param == nil {
		e.dynamic(b, p, quoted)
		return
	}
	name := p.Param.Value
	v, assigned := e.variables[name]
	fields, seen := e.seen(v)
	if assigned && v.array && seen && isEach(p, quoted) && isPlain(p) && p.Exp == nil && e.affords(fields...) {
		for i, f := range fields {
			if i > 0 {
				b.end()
			}
			b.begun = b.begun || quoted
			e.add(b, f, quoted)
		}
		return
	}
	value, isSet, isKnown := e.lookUp(name)
	text, isConstant := value.constant()
	isSet = isSet && (text != "" || p.Exp == nil || p.Exp.Op == syntax.DefaultUnset)
	switch {
	case p.Index != nil || !isKnown || !e.affords(value):
	case isPlain(p) && p.Exp == nil && isConstant && slices.Contains(ownVariables, name):
		b.add(piece{text: "${" + name + "}", dynamic: true, quoted: true, names: []string{name}, fixed: text})
		return
	case isPlain(p) && p.Exp == nil:
		e.add(b, value, quoted)
		return
	case isPlain(p) && isConstant && (p.Exp.Op == syntax.DefaultUnset || p.Exp.Op == syntax.DefaultUnsetOrNull):
		if isSet {
			e.add(b, value, quoted)
		} else if p.Exp.Word != nil {
			e.add(b, e.valueOf(p.Exp.Word), quoted)
		}
		return
	}
	text = e.text(p)
	if p.Short && p.Index == nil {
		text = "${" + name + "}"
	}
	b.add(piece{text: text, dynamic: true, quoted: quoted, names: namesIn(p)})
}

// affords reports whether a value may replace its name, and counts its bytes.
func (e *expander) affords(value ...field) bool {
	for _, f := range value {
		for _, p := range f {
			*e.expanded += len(p.text) + 1
		}
	}
	return *e.expanded <= maxExpanded
}

// isPlain reports whether a parameter is read unchanged, or with a default.
func isPlain(p *syntax.ParamExp) bool {
	return !p.Excl && !p.Length && !p.Width && p.Slice == nil && p.Repl == nil && p.Names == 0
}

// seen returns the value of a variable if that may replace its name.
func (e *expander) seen(v variable) (value []field, seen bool) {
	if e.flags && len(v.flags) > 0 {
		return v.flags, true
	}
	return v.fields, !v.opaque
}

// lookUp returns a variable's value. isKnown is also true if the variable is known not to be set.
func (e *expander) lookUp(name string) (value field, isSet, isKnown bool) {
	if v, assigned := e.variables[name]; assigned {
		fields, seen := e.seen(v)
		if v.array || !seen || len(fields) == 0 {
			return nil, false, false
		}
		return fields[0], true, true
	}
	text, isSet, isKnown := e.known(name)
	return field{{text: text}}, isSet, isKnown
}

func (e *expander) add(b *fieldBuilder, value field, quoted bool) {
	if !quoted {
		b.split(value)
		return
	}
	for _, p := range value {
		p.quoted = true
		b.add(p)
	}
}
