package blame

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

const (
	reportWidth   = 100                       // runes of a line
	quoteWidth    = reportWidth - len("  | ") // runes of a rank's own line
	lastLineWidth = 300                       // runes of its last line, which is wrapped
	reportLines   = 20                        // of the first rank's output, or of its traceback
	pathRunes     = 4096
)

// Report describes for a person, on one screen, how a round ended: who failed first, why, when, its last lines, where the rest of
// them is, who followed, and what comes next (a sentence; "" for nothing). chosen is Choose's result for deaths.
//
// The report is plain text of valid UTF-8. Each line ends in a line break, and has at most 100 characters, except the log's path,
// which people copy. Nothing in it controls a terminal, whatever the workers wrote.
func Report(deaths []Death, chosen int, next string) string {
	var r reportText
	if chosen < 0 || chosen >= len(deaths) {
		r.line("", "no rank failed")
	} else {
		r.culprit(deaths, chosen)
		r.others(deaths, chosen)
	}
	if next != "" {
		r.paragraph("next: ", clean(next, 1<<10), 3)
	}
	return r.String()
}

type reportText struct{ strings.Builder }

// line writes one line, and cuts it if it is too long.
func (r *reportText) line(indent, text string) {
	r.WriteString(indent + clean(text, reportWidth-len(indent)) + "\n")
}

// paragraph writes a text in at most the given number of lines.
func (r *reportText) paragraph(head, text string, most int) {
	for i, line := range wrap(text, reportWidth-len(head), most) {
		if i > 0 {
			head = strings.Repeat(" ", len(head))
		}
		r.WriteString(head + line + "\n")
	}
}

func (r *reportText) culprit(deaths []Death, chosen int) {
	d := deaths[chosen]
	what := d.How() + " and was the first to fail"
	switch {
	case d.asked():
		what = fmt.Sprintf("saved and asks to be started again (exit code %d)", d.Exit)
	case evidenceOf(d) == obeyed:
		what = d.How() + " as it was told to stop"
	case !slices.ContainsFunc(deaths, func(other Death) bool { return other.failed() && other.Rank != d.Rank }):
		what = d.How()
	}
	r.paragraph("", fmt.Sprintf("rank %d on %s %s, %s after the start", d.Rank, clean(d.Host, 64), what, since(d.Ended)), 2)
	if d.asked() {
		return
	}
	words := lastWords(d)
	if words.error != "" {
		r.paragraph("  ", clean(words.error, 1<<10), 4)
	}
	if words.origin != "" {
		r.paragraph("  which came from ", clean(words.origin, 1<<10), 2)
	}
	if d.OOM != "" {
		r.paragraph("  out of memory: ", clean(d.OOM, 1<<10), 3)
	}
	lost, _ := LostPeer(deaths, chosen)
	if d.Hint != "" && d.Hint != lost {
		r.paragraph("  hint: ", clean(d.Hint, 1<<10), 4)
	}
	r.endedBefore(deaths, chosen)
	if lost != "" {
		r.paragraph("  ", "("+lost+")", 3)
	}
	stack := unsaidStack(d)
	r.quote("its traceback, from its error file:", stack)
	r.quote("its last lines:", shownWords(d, max(reportLines-len(stack), wordsOut)))
	if d.LogPath != "" {
		r.WriteString("  log: " + clean(d.LogPath, pathRunes) + "\n")
	}
}

// LostPeer describes what is known of the peer that the chosen rank lost, if the rank's last lines only say that it lost one. known
// reports whether the likely peer is known: a rank that ended with 0 by itself while the chosen one still waited for it, or soon
// after. The text is "" if the chosen rank failed of something else.
//
// A rank that leaves early without an error may still run when the others fail because of that, so that its agent stops it. So
// the network is only one explanation if such a rank is among deaths.
func LostPeer(deaths []Death, chosen int) (text string, known bool) {
	lost := deaths[chosen]
	if evidenceOf(lost) != victim {
		return "", false
	}
	var before, after, quiet []Death // ended with 0 before the loss; ended with 0 by itself after it; others without an error
	for _, d := range deaths {
		switch e := evidenceOf(d); {
		case e == done && d.Ended < lost.Ended:
			before = append(before, d)
		case e == done && !d.Stopping && d.Ended <= lost.Ended+together:
			after = append(after, d)
		case e == done, e == obeyed:
			quiet = append(quiet, d)
		}
	}
	switch {
	case len(before) > 0:
		ago := since(lost.Ended - last(before).Ended)
		if len(before) == 1 {
			return fmt.Sprintf("it only lost a peer: rank %d had ended with 0, %s before; did it have less data?", before[0].Rank,
				ago), true
		}
		return fmt.Sprintf("it only lost a peer: ranks %s had ended with 0, the last of them %s before; did they have less data?",
			rangesOf(before), ago), true
	case len(after) == 1:
		return fmt.Sprintf("it only lost a peer: rank %d ended with 0, %s later; did it have less data?", after[0].Rank,
			since(after[0].Ended-lost.Ended)), true
	case len(after) > 1:
		return fmt.Sprintf("it only lost a peer: ranks %s ended with 0, the last of them %s later; did they have less data?",
			rangesOf(after), since(last(after).Ended-lost.Ended)), true
	case len(quiet) == 1:
		return fmt.Sprintf("it only lost a peer, and rank %d reported no error: that rank may have left early (did it have less data?) "+
			"or be stuck, or the network or a node failed", quiet[0].Rank), false
	case len(quiet) > 1:
		return fmt.Sprintf("it only lost a peer, and ranks %s reported no error: one of them may have left early (did it have less "+
			"data?) or be stuck, or the network or a node failed", rangesOf(quiet)), false
	}
	return "it only lost a peer, and no other rank reported a failure: the network failed, or a rank that had no time to report it", false
}

// last returns the death that came last.
func last(deaths []Death) Death {
	return slices.MaxFunc(deaths, func(a, b Death) int { return cmp.Compare(a.Ended, b.Ended) })
}

func rangesOf(deaths []Death) string {
	var ranks []int
	for _, d := range deaths {
		ranks = append(ranks, d.Rank)
	}
	return shorten(Ranges(ranks), maxRanges)
}

// maxRanges bounds the ranks in a sentence, which also goes into the verdict.
const maxRanges = 80

// quote writes a rank's own lines below a heading, or nothing if there are none.
func (r *reportText) quote(heading string, lines []string) {
	if len(lines) == 0 {
		return
	}
	r.line("  ", heading)
	for _, line := range lines {
		if len([]rune(line)) > quoteWidth {
			r.paragraph("  | ", line, 4)
			continue
		}
		r.line("  | ", line)
	}
}

// noticeable is the least time by which a rank must have ended before the named one to need an explanation.
const noticeable = 50 * time.Millisecond

// endedBefore explains why the named rank is not the one that ended first.
func (r *reportText) endedBefore(deaths []Death, chosen int) {
	earliest := chosen
	for i, d := range deaths {
		if d.failed() && !d.asked() && d.Ended < deaths[earliest].Ended {
			earliest = i
		}
	}
	if earliest == chosen || deaths[chosen].Ended-deaths[earliest].Ended < noticeable {
		return
	}
	why := "but something came before it"
	switch evidenceOf(deaths[earliest]) {
	case victim:
		why = "but only because it lost a peer"
	case obeyed:
		why = "but because it was told to"
	case suspect:
		why = "but after it had been told to stop"
	case firstHand:
		why = "but its error file has a later time"
	}
	d := deaths[earliest]
	r.line("  ", fmt.Sprintf("(rank %d on %s ended %s earlier, %s)", d.Rank, clean(d.Host, 40), since(deaths[chosen].Ended-d.Ended), why))
}

// others writes one line each for the ranks that failed too, that followed, and that saved.
func (r *reportText) others(deaths []Death, chosen int) {
	followed := Followed(deaths, chosen)
	var failed, after, saved []int
	for i, d := range deaths {
		switch {
		case i == chosen || !d.failed():
		case d.asked():
			saved = append(saved, d.Rank)
		case followed[i]:
			after = append(after, d.Rank)
		default:
			failed = append(failed, d.Rank)
		}
	}
	for _, group := range []struct {
		ranks     []int
		one, many string
	}{
		{failed, "rank failed, too", "ranks failed, too"},
		{after, "rank followed", "ranks followed"},
		{saved, "rank saved and asks to be started again", "ranks saved and ask to be started again"},
	} {
		did := group.many
		if len(group.ranks) == 1 {
			did = group.one
		}
		if n := len(group.ranks); n > 0 {
			r.paragraph("", fmt.Sprintf("%d %s: %s", n, did, Ranges(group.ranks)), 3)
		}
	}
}

// unsaidStack is the end of the traceback in the error file of a rank whose last lines have none because its standard error went
// elsewhere.
func unsaidStack(d Death) []string {
	errs, _ := d.words()
	if d.ErrorFile == nil || len(tracebacks(errs)) > 0 {
		return nil
	}
	return lastLines(strings.Split(d.ErrorFile.Stack, "\n"), reportLines)
}

// shownWords returns at most the given number of last lines: those of standard error first, then those of standard output.
func shownWords(d Death, most int) []string {
	errs, outs := d.words()
	lines := lastLines(errs, most)
	if room := most - len(lines) - 1; room > 0 && len(outs) > 0 {
		if outs = lastLines(outs, room); len(outs) > 0 {
			lines = append(append(lines, outMark), outs...)
		}
	}
	return lines
}

// lastLines returns at most the given number of last lines. It drops empty lines around them, and merges those between them. It cuts long
// lines, the last one later than the others: that is usually the error, and what it says may come at its end.
func lastLines(tail []string, most int) []string {
	var lines []string // the last one first
	for i := len(tail) - 1; i >= 0 && len(lines) < most; i-- {
		width := quoteWidth
		if len(lines) == 0 {
			width = lastLineWidth
		}
		line := clean(tail[i], width)
		if line == "" && (len(lines) == 0 || lines[len(lines)-1] == "") {
			continue
		}
		lines = append(lines, line)
	}
	if n := len(lines); n > 0 && lines[n-1] == "" {
		lines = lines[:n-1]
	}
	slices.Reverse(lines)
	return lines
}

// since formats a duration for a person.
func since(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s"
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// Ranges formats ranks in ascending order, consecutive ones as a range: "0-2, 4".
func Ranges(ranks []int) string {
	ranks = slices.Compact(slices.Sorted(slices.Values(ranks)))
	var parts []string
	for i := 0; i < len(ranks); {
		last := i
		for last+1 < len(ranks) && ranks[last+1] == ranks[last]+1 {
			last++
		}
		part := strconv.Itoa(ranks[i])
		if last > i {
			part += "-" + strconv.Itoa(ranks[last])
		}
		parts = append(parts, part)
		i = last + 1
	}
	return strings.Join(parts, ", ")
}

// escape matches what controls a terminal (ECMA-48): CSI sequences, strings such as the window's title up to their end, and other
// escape sequences.
var escape = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile("(?:\x1b\\[|\u009b)[0-?]*[ -/]*[@-~]?|\x1b[PX^_\\]][^\x07\x1b]*(?:\x07|\x1b\\\\)?|\x1b[ -/]*[0-~]?")
})

// clean makes a line of a log harmless and readable: it returns what a terminal would finally have shown, without colors, controls
// and characters that change the direction of text, in at most width runes.
func clean(line string, width int) string {
	const looked = 8 << 10 // bytes; the rest would not be shown
	line = shown(line)
	line = escape().ReplaceAllString(strings.ToValidUTF8(line[:min(len(line), looked)], "?"), "")
	line = strings.ReplaceAll(line, "\t", "    ")
	line = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r):
			return -1
		case !unicode.IsPrint(r): // includes the characters that change direction: they are of category Cf
			return '?'
		}
		return r
	}, line)
	return shorten(line, width)
}

// shown is what remains visible of a line that overwrites itself, as progress bars do.
func shown(line string) string {
	line = strings.TrimRight(line, " \t\r\n")
	return line[strings.LastIndexByte(line, '\r')+1:]
}

func shorten(s string, width int) string {
	n := 0
	for i := range s {
		if n++; n > width {
			runes := []rune(s[:i])
			return string(runes[:width-3]) + "..."
		}
	}
	return s
}

// wrap wraps words at width, into at most the given number of lines. If there are more, the last one ends in dots.
func wrap(text string, width, most int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		word = shorten(word, width)
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	if len(lines) > most {
		lines = lines[:most]
		lines[most-1] = shorten(lines[most-1]+strings.Repeat(".", width), width)
	}
	return lines
}
