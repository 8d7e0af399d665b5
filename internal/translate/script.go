package translate

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"

	words "ddpbatch/internal/text"
)

// checkScript rejects scripts that sbatch rejects, and scripts for other shells. It repairs comments in another encoding.
func checkScript(text string) (string, error) {
	if strings.TrimSpace(text) == "" {
		return "", errors.New("the script is empty")
	}
	first, _, _ := strings.Cut(text, "\n")
	switch {
	case !strings.HasPrefix(text, "#!"):
		return "", errors.New(`it is not a batch script: its first line must begin with #!, as in "#!/bin/bash"`)
	case strings.Contains(text, "\r\n"):
		return "", errors.New("it has DOS line endings, which sbatch rejects: save it with Unix line endings")
	case !shellForm().MatchString(first):
		return "", fmt.Errorf("line 1: %s: only scripts for sh, bash, dash and ksh can be translated", words.Quoted(first, maxShown))
	}
	var b strings.Builder
	number := 0
	for line := range strings.Lines(text) {
		number++
		if !utf8.ValidString(line) {
			if trimmed := strings.TrimSpace(line); !strings.HasPrefix(trimmed, "#") || strings.HasPrefix(line, "#SBATCH") {
				return "", fmt.Errorf("line %d: it is not UTF-8 text", number)
			}
			line = strings.ToValidUTF8(line, "?")
		}
		b.WriteString(line)
	}
	return b.String(), checkText(b.String())
}

func checkText(text string) error {
	switch {
	case len(text) > maxScript:
		return fmt.Errorf("it is longer than %d bytes", maxScript)
	case strings.Contains(text, "\x00"):
		return errors.New("it holds a NUL byte")
	case !utf8.ValidString(text):
		return errors.New("it is not UTF-8 text")
	}
	return nil
}

// parse parses shell text.
func parse(text string) ([]*syntax.Stmt, error) {
	file, err := parseFile(text)
	if err != nil {
		return nil, err
	}
	return file.Stmts, nil
}

// parseFile parses shell text with its comments.
func parseFile(text string) (*syntax.File, error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash), syntax.KeepComments(true)).Parse(strings.NewReader(text), "")
	if err != nil {
		if at, ok := errors.AsType[syntax.ParseError](err); ok {
			return nil, fmt.Errorf("line %d: not valid shell text: %s", at.Pos.Line(), quoted(at.Text))
		}
		return nil, fmt.Errorf("not valid shell text: %s", quoted(err.Error()))
	}
	return file, nil
}

// source returns the text of a node, with its here-documents.
func (t *translation) source(n syntax.Node) string {
	from, to := int(n.Pos().Offset()), int(n.End().Offset())
	syntax.Walk(n, func(n syntax.Node) bool {
		if r, ok := n.(*syntax.Redirect); ok && r.Hdoc != nil {
			end := int(r.Hdoc.End().Offset())
			if line := strings.IndexByte(t.src[min(end, len(t.src)):], '\n'); line >= 0 {
				to = max(to, end+line)
			} else {
				to = len(t.src)
			}
		}
		return true
	})
	if from < 0 || to > len(t.src) || from > to {
		return ""
	}
	return strings.TrimRight(strings.TrimSuffix(strings.TrimRight(t.src[from:to], " \t\n"), ";"), " \t")
}
