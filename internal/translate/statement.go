package translate

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"ddpbatch/internal/torchrun"
)

// itemKind says what a statement does.
type itemKind int

const (
	setsVariable   itemKind = iota // X=1, export X=1
	runsLine                       // a shell line, kept as it is
	loadsModules                   // module load
	entersVenv                     // source VENV/bin/activate
	entersConda                    // conda activate
	hooksConda                     // eval "$(conda shell.bash hook)"
	changesDir                     // cd
	mayLaunch                      // starts a program
	isInPlace                      // a variable whose value replaces its name
	isLeftOut                      // done by ddpbatch itself, as why says
	isUntranslated                 // why says what to do instead
)

// An item is one statement of a script.
type item struct {
	kind       itemKind
	line       int
	text       string // as in the script
	why        string
	name       string   // setsVariable
	value      field    // setsVariable, changesDir
	folder     string   // entersVenv, entersConda: the environment
	exported   bool     // setsVariable
	isArray    bool     // setsVariable: NAME=(...)
	inPlace    bool     // of an array: its elements are known
	modules    []string // loadsModules
	purges     bool     // of runsLine: module purge
	reads      []string // the variables that it needs
	writes     []string // the variables that it may set
	quiet      bool     // of runsLine: later lines do not depend on it
	writesFile bool     // of a quiet one: except for the file that it writes
	words      []field  // mayLaunch
	prefix     []item   // mayLaunch: variables set only for that command
	strength   int      // mayLaunch: how likely it is the launch line
	apart      bool     // mayLaunch: the script does not wait for it
	notes      []string // mayLaunch: what was removed from the line
	holds      int      // isUntranslated: how likely a command inside it is the launch line
	shape      string   // isUntranslated: what it is: "loop", for example
}

// statements reads statements in order.
func (t *translation) statements(list []*syntax.Stmt) {
	for _, s := range list {
		t.statement(s)
	}
}

func (t *translation) statement(s *syntax.Stmt) {
	and, ok := s.Cmd.(*syntax.BinaryCmd)
	if ok && and.Op == syntax.AndStmt && !s.Negated && len(s.Redirs) == 0 && !s.Background && t.succeeds(and.X) {
		t.statement(and.X)
		t.statement(and.Y)
		return
	}
	for _, it := range t.itemsOf(s) {
		for _, name := range it.writes {
			t.variables[name] = variable{opaque: true}
		}
		t.items = append(t.items, it)
	}
}

// before are programs that a script calls before others, joined by &&, although they are not meant to decide whether those run.
var before = strings.Fields("cd source . module ml conda mamba mkdir set ulimit")

// succeeds reports whether a statement before && is not expected to fail.
func (t *translation) succeeds(s *syntax.Stmt) bool {
	switch cmd := s.Cmd.(type) {
	case *syntax.DeclClause:
		return true
	case *syntax.CallExpr:
		return len(cmd.Args) == 0 || slices.Contains(before, programOf(t.fieldsOf(cmd.Args))) || t.strengthOf(s) >= fromPython
	case *syntax.BinaryCmd:
		return cmd.Op == syntax.AndStmt && t.succeeds(cmd.X) && t.succeeds(cmd.Y)
	}
	return false
}

// itemsOf reads one statement, which may assign several variables.
func (t *translation) itemsOf(s *syntax.Stmt) []item {
	base := item{line: int(s.Pos().Line()) + t.firstLine, text: t.source(s)}
	if t.isCommand {
		base.line = 0
	}
	if why := t.blocked(s); why != "" {
		base.kind, base.why, base.writes = isUntranslated, why, assignedIn(s)
		base.holds, base.shape = t.strengthIn(s), shapeOf(s)
		if f, ok := s.Cmd.(*syntax.FuncDecl); ok && f.Name != nil {
			t.functions[f.Name.Value] = true
		}
		return []item{base}
	}
	s, base.notes = t.unwrap(s)
	switch cmd := s.Cmd.(type) {
	case *syntax.DeclClause:
		if len(s.Redirs) == 0 {
			return t.declaration(base, cmd)
		}
	case *syntax.CallExpr:
		if len(cmd.Args) == 0 && len(s.Redirs) == 0 {
			return t.assignments(base, cmd.Assigns, false)
		}
		if len(cmd.Args) > 0 && !s.Negated {
			return t.call(base, s, cmd)
		}
	}
	base.kind, base.reads, base.writes = runsLine, namesIn(s), assignedIn(s)
	if why := t.contains(s); why != "" {
		base.kind, base.why = isUntranslated, why
		base.holds, base.shape = t.strengthIn(s), shapeOf(s)
	}
	return []item{base}
}

// loopNote says what to do instead of a loop.
const loopNote = "a loop: [sweep] and slurm.array run the job for each value"

// blocked says why a statement cannot be in a job file. It returns "" if it can.
func (t *translation) blocked(s *syntax.Stmt) string {
	switch s.Cmd.(type) {
	case *syntax.FuncDecl:
		return "a function"
	case *syntax.ForClause, *syntax.WhileClause:
		return loopNote
	case *syntax.CoprocClause:
		return "a background process"
	}
	return ""
}

// assignedIn returns the variables that a statement may set.
func assignedIn(s *syntax.Stmt) (names []string) {
	syntax.Walk(s, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.Assign:
			if n.Name != nil {
				names = append(names, n.Name.Value)
			}
		case *syntax.WordIter:
			names = append(names, n.Name.Value)
		case *syntax.CallExpr: // read, mapfile, printf -v, ...
			if len(n.Args) > 0 && slices.Contains([]string{"read", "mapfile", "readarray", "printf", "getopts", "unset"}, n.Args[0].Lit()) {
				for _, w := range n.Args[1:] {
					if syntax.ValidName(w.Lit()) {
						names = append(names, w.Lit())
					}
				}
			}
		}
		return true
	})
	return names
}

const timeNote = "left out: time: status and the run directory say how long the ranks ran"

// unwrap removes from a statement what does not change which program it starts: time, a pipe into tee, and what to do when it fails.
func (t *translation) unwrap(s *syntax.Stmt) (*syntax.Stmt, []string) {
	var notes []string
	for {
		binary, ok := s.Cmd.(*syntax.BinaryCmd)
		if timed, is := s.Cmd.(*syntax.TimeClause); is && timed.Stmt != nil {
			notes = append(notes, timeNote)
			s = timed.Stmt
			continue
		}
		if ok && binary.Op == syntax.OrStmt && t.changesFolder(binary.X) && ends(binary.Y) {
			return binary.X, nil // a missing directory ends the job in any case
		}
		if !ok || t.strengthOf(binary.X) < fromPython {
			return s, notes
		}
		switch binary.Op {
		case syntax.Pipe, syntax.PipeAll:
			notes = append(notes, "left out: | "+quoted(t.source(binary.Y))+": the ranks' output is in the run directory")
		case syntax.OrStmt, syntax.AndStmt:
			notes = append(notes, "not translated: "+binary.Op.String()+" "+quoted(t.source(binary.Y))+
				": [requeue] controls what follows an end")
		}
		s = binary.X
	}
}

// changesFolder reports whether a statement is "cd DIRECTORY".
func (t *translation) changesFolder(s *syntax.Stmt) bool {
	cmd, ok := s.Cmd.(*syntax.CallExpr)
	return ok && len(cmd.Args) == 2 && len(s.Redirs) == 0 && cmd.Args[0].Lit() == "cd"
}

// ends reports whether a statement ends the script.
func ends(s *syntax.Stmt) bool {
	switch cmd := s.Cmd.(type) {
	case *syntax.CallExpr:
		return len(cmd.Args) > 0 && slices.Contains([]string{"exit", "return"}, cmd.Args[0].Lit())
	case *syntax.Block:
		return len(cmd.Stmts) > 0 && ends(cmd.Stmts[len(cmd.Stmts)-1])
	}
	return false
}

// strengthOf returns the strength of a statement as a launch line.
func (t *translation) strengthOf(s *syntax.Stmt) int {
	switch cmd := s.Cmd.(type) {
	case *syntax.CallExpr:
		return strength(t.fieldsOf(cmd.Args))
	case *syntax.BinaryCmd:
		return t.strengthOf(cmd.X)
	case *syntax.TimeClause:
		if cmd.Stmt != nil {
			return t.strengthOf(cmd.Stmt)
		}
	}
	return notLaunched
}

// strengthIn returns the strength of the likeliest launch line inside a compound statement. A step of srun that only copies or removes
// files, for example, does not count.
func (t *translation) strengthIn(s *syntax.Stmt) int {
	strongest := notLaunched
	syntax.Walk(s, func(n syntax.Node) bool {
		if call, ok := n.(*syntax.CallExpr); ok && len(call.Args) > 0 {
			words := t.fieldsOf(call.Args)
			if looksForAProgram(words) {
				return true
			}
			if !torchrun.IsStarter(programOf(words)) || !slices.Contains(utilities, stepProgram(textsOf(words))) {
				strongest = max(strongest, strength(words))
			}
		}
		return true
	})
	return strongest
}

// looksForAProgram reports whether a command only finds out whether a program or a Python package is there, or installs it.
func looksForAProgram(words []field) bool {
	switch program := programOf(words); {
	case slices.Contains([]string{"command", "type", "which", "pip", "pip3"}, program):
		return true
	case !torchrun.IsInterpreter(program) || len(words) < 2:
		return false
	}
	texts := textsOf(words)
	return texts[1] == "-c" || texts[1] == "-m" && len(texts) > 2 && slices.Contains(setupModules, texts[2])
}

// shapeOf names the kind of a compound statement.
func shapeOf(s *syntax.Stmt) string {
	switch s.Cmd.(type) {
	case *syntax.ForClause, *syntax.WhileClause:
		return "loop"
	case *syntax.FuncDecl:
		return "function"
	case *syntax.IfClause, *syntax.CaseClause:
		return "condition"
	}
	return "list of commands"
}

// contains says what in a compound statement cannot be part of a setup.
func (t *translation) contains(s *syntax.Stmt) (why string) {
	syntax.Walk(s, func(n syntax.Node) bool {
		if why != "" {
			return false
		}
		switch n := n.(type) {
		case *syntax.Stmt:
			why = t.blocked(n)
			if n.Background {
				why = "a background process"
			}
		case *syntax.CallExpr:
			if len(n.Args) > 0 {
				words := t.fieldsOf(n.Args)
				if strength(words) >= fromSrun || torchrun.IsStarter(programOf(words)) {
					why = "it may start ranks: write launch.command"
				} else if p := programOf(words); slices.Contains(takesOver, p) || t.functions[p] || actsOnJobs(words) {
					why = p + " cannot run before the ranks start"
				}
			}
		}
		return true
	})
	return why
}

// endsShell are programs that end the shell, or wait for what it has started.
var endsShell = []string{"exit", "return", "exec", "break", "continue", "logout", "kill"}

// takesOver are those of them that cannot be part of a setup. One that exits there ends the job, as in the script.
var takesOver = []string{"exec", "logout", "kill"}

// quietPrograms only print, or set only what they themselves name, so that later lines do not depend on them.
var quietPrograms = strings.Fields("echo printf date hostname pwd env printenv set shopt ulimit umask mkdir " +
	"nvidia-smi rocm-smi ls cat free lscpu df which type true : uname id whoami touch sleep")

// utilities are programs that a script calls on its way, and never a job's own program.
var utilities = append(strings.Fields("cp mv rm tar rsync ln chmod unzip unpigz gzip test [ [[ sed grep awk find "+
	"export pip pip3 git make cmake wandb huggingface-cli module ml conda mamba source . eval cd pushd popd alias unset "+
	"read mapfile scontrol squeue "+
	"sinfo sacct curl wget wait trap head tail sort wc tee xargs stat realpath dirname basename lfs aws gsutil rclone"), quietPrograms...)

// programOf returns the name of a command's program, without its directory, or "" if only the shell knows it.
func programOf(words []field) string {
	if len(words) == 0 {
		return ""
	}
	text, _ := words[0].constant()
	return path.Base(text)
}

// actsOnJobs reports whether a command submits, ends or changes jobs, or acts on other machines.
func actsOnJobs(words []field) bool {
	switch programOf(words) {
	case "sbatch", "salloc", "scancel", "ssh", "pdsh", "parallel":
		return true
	case "scontrol":
		return len(words) > 1 && !slices.Contains([]string{"show", "ping", "version"}, constantAt(words, 1))
	}
	return false
}

func constantAt(words []field, i int) string {
	if i >= len(words) {
		return ""
	}
	text, _ := words[i].constant()
	return text
}
