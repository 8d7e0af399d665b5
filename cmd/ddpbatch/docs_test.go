package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"ddpbatch/internal/exit"
	"ddpbatch/internal/torchrun"
	"ddpbatch/mpi/launch"
)

// A docRow is a row of a table of a page in docs/cli.
type docRow struct {
	place    string   // "ckpt.md:31"
	headings []string // above the table, the page's title first
	head     string   // the first cell of the table's heading
	cells    []string
}

// section returns the innermost heading above the row that is the name of a command, or an empty string.
func (r docRow) section(commands map[string]*cli.Command) string {
	for _, heading := range slices.Backward(r.headings) {
		if commands[heading] != nil {
			return heading
		}
	}
	return ""
}

// readPage returns the rows of all tables of a page, outside of code.
func readPage(t *testing.T, name string) (rows []docRow) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "cli", name))
	if err != nil {
		t.Fatal(err)
	}
	var headings []string
	head, inCode := "", false
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasPrefix(line, "```") {
			inCode = !inCode
		}
		marks := len(line) - len(strings.TrimLeft(line, "#"))
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case inCode:
		case marks > 0:
			headings = append(slices.Clone(headings[:min(marks-1, len(headings))]), strings.TrimSpace(line[marks:]))
		case !strings.HasPrefix(line, "|"):
			head = ""
		case head == "":
			head = cells[0]
		case !strings.HasPrefix(line, "|---"):
			rows = append(rows, docRow{fmt.Sprintf("%s:%d", name, i+1), headings, head, cells})
		}
	}
	return rows
}

// visibleCommands returns the commands that help shows, by their words: "ckpt", "ckpt ls".
func visibleCommands() map[string]*cli.Command {
	all := map[string]*cli.Command{}
	var add func(commands []*cli.Command, before string)
	add = func(commands []*cli.Command, before string) {
		for _, c := range commands {
			if !c.Hidden {
				all[before+c.Name] = c
				add(c.Subcommands, before+c.Name+" ")
			}
		}
	}
	add(newApp(&env{}).Commands, "")
	return all
}

var pageLink = regexp.MustCompile(`^\[([a-z]+)\]\(([a-z-]+\.md)\)$`)

// commandPages returns the pages of the commands, as the table of README.md links them.
func commandPages(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for _, row := range readPage(t, "README.md") {
		if row.head != "command" || len(row.headings) > 1 {
			continue
		}
		link := pageLink.FindStringSubmatch(row.cells[0])
		if link == nil {
			t.Fatalf("%s: %q is not a link to a command's page", row.place, row.cells[0])
		}
		if pages[link[1]] != "" {
			t.Errorf("%s: %s has a row already", row.place, link[1])
		}
		pages[link[1]] = link[2]
	}
	return pages
}

// The table of docs/cli/README.md has a row for each command. Each page of docs/cli belongs to a command or is named in this test.
func TestEveryCommandHasItsPage(t *testing.T) {
	pages := commandPages(t)
	for path := range visibleCommands() {
		if !strings.Contains(path, " ") && pages[path] == "" {
			t.Errorf("README.md has no row for the command %s", path)
		}
	}
	for name := range pages {
		if visibleCommands()[name] == nil {
			t.Errorf("README.md has a row for the command %s, which does not exist", name)
		}
	}
	all, err := filepath.Glob(filepath.Join("..", "..", "docs", "cli", "*.md"))
	if err != nil || len(all) < 20 {
		t.Fatalf("pages of docs/cli: %q, %v", all, err)
	}
	known := append(slices.Collect(maps.Values(pages)), "README.md", "exit-codes.md", "json.md")
	for _, path := range all {
		if !slices.Contains(known, filepath.Base(path)) {
			t.Errorf("docs/cli/README.md does not link to %s", filepath.Base(path))
		}
	}
}

// A docFlag is a flag of a command.
type docFlag struct {
	names     []string // as a user writes them
	otherwise string   // its default; empty if there is none, or if it has several words
	says      []string // what help says of it: its usage, and its default if that has several words
}

var usageDefault = regexp.MustCompile(`\(default ([^)]+)\)`)

// flagsOf returns the visible flags of a command.
func flagsOf(t *testing.T, c *cli.Command) (all []docFlag) {
	t.Helper()
	dashed := func(names ...string) []string {
		for i, name := range names {
			names[i] = "-" + name
			if len(name) > 1 {
				names[i] = "--" + name
			}
		}
		return names
	}
	if c.Name == "run" {
		defaults := runDefaults(t)
		for _, f := range torchrun.Flags {
			names := []string{f.Name}
			if f.Short != 0 {
				names = append(names, string(f.Short))
			}
			if f.Old != "" {
				names = append(names, f.Old)
			}
			otherwise := defaults[f.Name]
			if said := usageDefault.FindStringSubmatch(f.Usage); said != nil {
				if otherwise != "" && otherwise != said[1] {
					t.Errorf("help says that the default of --%s is %s, and it is %s", f.Name, said[1], otherwise)
				}
				otherwise = said[1]
			}
			all = append(all, docFlag{dashed(names...), otherwise, []string{f.Usage}})
		}
		return all
	}
	for _, f := range c.Flags {
		if shown, ok := f.(cli.VisibleFlag); ok && !shown.IsVisible() {
			continue
		}
		says := []string{f.(cli.DocGenerationFlag).GetUsage()}
		otherwise := strings.Trim(f.(cli.DocGenerationFlag).GetDefaultText(), `"`)
		if strings.Contains(otherwise, " ") {
			says, otherwise = append(says, "(default: "+otherwise+")"), ""
		}
		if slices.Contains([]string{"0", "0s", "false", "none"}, otherwise) {
			otherwise = ""
		}
		all = append(all, docFlag{dashed(slices.Clone(f.Names())...), otherwise, says})
	}
	return all
}

// runDefaults returns the defaults of run's flags, by name, for those whose default is a value.
func runDefaults(t *testing.T) map[string]string {
	t.Helper()
	o, _, err := torchrun.Parse(nil, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	d := launch.DefaultConfig()
	var signals []string
	for _, sig := range stopSignals {
		signals = append(signals, unix.SignalName(sig))
	}
	return map[string]string{
		"nproc-per-node": fmt.Sprint(d.NprocPerNode.Counts[0]), "node-rank": fmt.Sprint(o.NodeRank),
		"master-port": fmt.Sprint(o.MasterPort), "gpus": d.GPUs,
		"max-restarts": fmt.Sprint(o.MaxRestarts), "signals-to-handle": strings.Join(signals, ","),
		"shutdown-timeout": fmt.Sprintf("%.0fs", d.Grace.Seconds()),
	}
}

var (
	codeSpan  = regexp.MustCompile("`([^`]+)`")
	flagWord  = regexp.MustCompile(`^--?[a-z][a-z0-9_-]*`)
	saidValue = regexp.MustCompile(`\(default ([^) ]+)\)`)
)

// names returns the flags that the first cell of a row names.
func (r docRow) names() (all []string) {
	for _, span := range codeSpan.FindAllStringSubmatch(r.cells[0], -1) {
		if name := flagWord.FindString(span[1]); name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// sameNames reports whether two lists have the same names in any order.
func sameNames(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

var linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// plainText removes the backquotes and link targets from Markdown or from a flag's usage.
func plainText(text string) string {
	return strings.ReplaceAll(linkText.ReplaceAllString(text, "$1"), "`", "")
}

func TestPlainText(t *testing.T) {
	const text, want = "one of `A`, [B](b.md#x) or kill[:N]", "one of A, B or kill[:N]"
	if got := plainText(text); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// The page of a command has, in tables headed "flag", a row for each flag of the command with all its names, the words of its help and its
// default, and no row for another flag. Rows above the sections of subcommands apply to all subcommands.
func TestFlagsAreTheDocumentedOnes(t *testing.T) {
	commands, pages := visibleCommands(), commandPages(t)
	rows := map[string][]docRow{} // by command
	used := map[string]bool{}     // by place
	for _, page := range slices.Compact(slices.Sorted(maps.Values(pages))) {
		for _, row := range readPage(t, page) {
			if row.head != "flag" {
				continue
			}
			of := row.section(commands)
			if of == "" {
				t.Errorf("%s: the table is below the heading of no command", row.place)
			}
			rows[of] = append(rows[of], row)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(commands)) {
		c := commands[path]
		if len(c.Subcommands) > 0 {
			continue
		}
		parent, _, _ := strings.Cut(path, " ")
		mine := rows[path]
		if parent != path {
			mine = slices.Concat(mine, rows[parent])
		}
		for _, flag := range flagsOf(t, c) {
			var of []docRow
			for _, row := range mine {
				if sameNames(row.names(), flag.names) {
					of = append(of, row)
				}
			}
			if len(of) != 1 {
				t.Errorf("%s has %d rows for %q of the command %s, want 1", pages[parent], len(of), flag.names, path)
				continue
			}
			used[of[0].place] = true
			for _, text := range flag.says {
				if meaning := plainText(of[0].cells[1]); !strings.Contains(meaning, plainText(text)) {
					t.Errorf("%s: help says of %s %q, and the row says %q", of[0].place, flag.names[0], plainText(text), meaning)
				}
			}
			said := ""
			if found := saidValue.FindStringSubmatch(of[0].cells[1]); found != nil {
				said = found[1]
			}
			if isNone := said == "0" && flag.otherwise == ""; said != flag.otherwise && !isNone {
				t.Errorf("%s: the default of %s is %q, and the row says %q", of[0].place, flag.names[0], flag.otherwise, said)
			}
		}
	}
	for of, list := range rows {
		for _, row := range list {
			if !used[row.place] {
				t.Errorf("%s: the command %s has no flag %q", row.place, of, row.names())
			}
			if len(row.cells) != 2 {
				t.Errorf("%s: the row has %d cells", row.place, len(row.cells))
			}
		}
	}
}

var signalCode = regexp.MustCompile(`^1(2[89]|[3-9][0-9])$`)

// Each page of a command lists exit codes below the heading "Exit codes", and the program has each of these codes.
func TestExitCodesOfCommands(t *testing.T) {
	known := map[string]bool{}
	for _, m := range exit.Meanings() {
		for code := range strings.SplitSeq(m.Code, ", ") {
			known[code] = true
		}
	}
	for name, page := range commandPages(t) {
		var codes []string
		for _, row := range readPage(t, page) {
			if row.head != "code" || row.headings[len(row.headings)-1] != "Exit codes" {
				continue
			}
			for code := range strings.SplitSeq(row.cells[0], ", ") {
				if !known[code] && !(known["128+N"] && signalCode.MatchString(code)) {
					t.Errorf("%s: there is no exit code %s", row.place, code)
				}
				if slices.Contains(codes, code) {
					t.Errorf("%s: %s has a row already", row.place, code)
				}
				codes = append(codes, code)
			}
		}
		if !slices.Contains(codes, "0") {
			t.Errorf("%s, the page of %s, lists the exit codes %q", page, name, codes)
		}
	}
}

// The list in internal/exit has the same codes as the table in docs/cli/exit-codes.md.
func TestMeaningsAreOfTheDocumentedCodes(t *testing.T) {
	var documented, listed []string
	for _, row := range readPage(t, "exit-codes.md") {
		if row.head == "code" {
			documented = append(documented, row.cells[0])
		}
	}
	for _, m := range exit.Meanings() {
		listed = append(listed, m.Code)
	}
	if !slices.Equal(listed, documented) {
		t.Errorf("%q are listed, and docs/cli/exit-codes.md has %q", listed, documented)
	}
}

var docLink = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// Each relative link of docs/cli leads to a file. If it names a heading on these pages, that heading exists.
func TestLinksOfCommandPagesLead(t *testing.T) {
	folder := filepath.Join("..", "..", "docs", "cli")
	paths, err := filepath.Glob(filepath.Join(folder, "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	anchors := map[string][]string{} // by page
	texts := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(path)
		texts[name] = string(text)
		for line := range strings.Lines(string(text)) {
			if heading := strings.TrimLeft(line, "#"); heading != line {
				anchors[name] = append(anchors[name], anchorOf(heading))
			}
		}
	}
	for name, text := range texts {
		for _, link := range docLink.FindAllStringSubmatch(text, -1) {
			path, anchor, _ := strings.Cut(link[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			if path == "" {
				path = name
			}
			if _, err := os.Stat(filepath.Join(folder, path)); err != nil {
				t.Errorf("%s links to %s: %v", name, link[1], err)
			}
			if known := anchors[path]; anchor != "" && known != nil && !slices.Contains(known, anchor) {
				t.Errorf("%s links to %s, and %s has no such heading", name, link[1], path)
			}
		}
	}
}

// anchorOf returns the anchor that GitHub makes for a heading.
func anchorOf(heading string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(heading)) {
		switch {
		case r == ' ':
			b.WriteByte('-')
		case r == '-' || r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		}
	}
	return b.String()
}
