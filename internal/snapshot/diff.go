package snapshot

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"ddpbatch/internal/redact"
)

const (
	maxDiff     = 4 << 20   // bytes; the copy itself has the files
	maxDiffLine = 64 << 10  // bytes in one line
	maxArgs     = 128 << 10 // bytes of paths in one call of git: a fraction of what the kernel permits (execve(2))
)

var errDiffCut = errors.New("the diff is too long")

// diff writes how the files differ from the commits, and records which ones do. Files that code.exclude names are left out.
func (s *Selection) diff(ctx context.Context, r *Record, to *bytes.Buffer) error {
	for _, repo := range s.repos {
		if repo.commit == "" {
			continue
		}
		err := s.diffRepository(ctx, repo, r, to)
		if errors.Is(err, errDiffCut) {
			r.DiffCut = true
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// diffSettings keep git from starting programs for a diff, and keep out of the diff what a configuration would add.
var diffSettings = []string{
	"diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--submodule=short", "--ignore-submodules=dirty",
}

func (s *Selection) diffRepository(ctx context.Context, repo repository, r *Record, to *bytes.Buffer) error {
	dir := filepath.Join(s.Root, repo.path)
	git, err := s.git.withoutFilters(ctx, dir)
	if err != nil {
		return refused(err)
	}
	var changed []string
	names := slices.Concat(diffSettings, []string{"--name-only", "-z", repo.commit, "--"})
	for _, name := range s.special {
		if rel, err := filepath.Rel(repo.path, name); err == nil && filepath.IsLocal(rel) {
			names = append(names, ":(exclude,literal,top)"+rel)
		}
	}
	err = git.each(ctx, dir, func(name string) error {
		whole := path.Join(repo.path, name)
		if matchAny(s.exclude, whole, false) {
			return nil
		}
		changed = append(changed, name)
		if r.Changes++; len(r.Changed) < maxListed {
			r.Changed = append(r.Changed, shown(whole))
		}
		return nil
	}, names...)
	if err != nil {
		return refused(err)
	}
	prefix := ""
	if repo.path != "." {
		prefix = repo.path + "/"
	}
	git.options = append(git.options, "--literal-pathspecs")
	line := slices.Concat(diffSettings, []string{"--full-index", "--src-prefix=a/" + prefix, "--dst-prefix=b/" + prefix, repo.commit, "--"})
	values := redact.ValuesOf(s.request.Environ)
	for len(changed) > 0 {
		n, size := 0, 0
		for n < len(changed) && (n == 0 || size+len(changed[n]) < maxArgs) {
			size += len(changed[n]) + 1
			n++
		}
		err := git.run(ctx, dir, func(out io.Reader) error { return blankSecrets(out, to, values) }, slices.Concat(line, changed[:n])...)
		if err != nil {
			return refused(err)
		}
		changed = changed[n:]
	}
	return nil
}

// blankSecrets copies a diff and blanks what may be secret: the values of the environment's variables, what is assigned to a name that may
// hold a secret, and private keys. It returns errDiffCut if the diff is too long.
func blankSecrets(from io.Reader, to *bytes.Buffer, values redact.Values) error {
	in := bufio.NewReaderSize(from, maxDiffLine)
	inKey := false
	for {
		line, err := in.ReadSlice('\n')
		cut := errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !cut && !errors.Is(err, io.EOF) {
			return err
		}
		text := string(line) // begins with +, - or a blank in a file's content
		if cut {             // a line of data
			text = text[:1] + "(a line of more than 64 KiB)\n"
			if err := skipLine(in); err != nil {
				return err
			}
		}
		if !isDiffContent(text) {
			inKey = false
		} else {
			text, inKey = blankKey(text, inKey)
			text = text[:1] + blankLine(text[1:], values)
		}
		if to.Len()+len(text) > maxDiff {
			return errDiffCut
		}
		to.WriteString(text)
		if errors.Is(err, io.EOF) {
			return nil
		}
	}
}

const keyEnds = "-----END "

var keyBegins = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----`) })

// keyLine matches a line of a key, whose beginning may be outside the diff.
var keyLine = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9+/=]{60,}$`) })

// blankKey returns a line of a diff without the part of a private key in it. inKey says that a key has begun in an earlier line; the result
// says so for the next line.
func blankKey(line string, inKey bool) (string, bool) {
	content := strings.TrimSpace(line[1:])
	begin := keyBegins().FindStringIndex(line)
	switch {
	case begin != nil:
		rest := line[begin[1]:]
		if strings.TrimSpace(rest) != "" { // the whole key is on one line, as in a text with \n in it
			line = line[:begin[1]] + redact.Blank + "\n"
		}
		return line, !strings.Contains(rest, keyEnds)
	case strings.HasPrefix(content, keyEnds):
		return line, false
	case inKey || keyLine().MatchString(content):
		return line[:1] + redact.Blank + "\n", inKey && !strings.Contains(content, keyEnds)
	}
	return line, false
}

func isDiffContent(line string) bool {
	return line != "" && (line[0] == '+' || line[0] == '-' || line[0] == ' ')
}

// skipLine reads to the end of a line.
func skipLine(in *bufio.Reader) error {
	for {
		_, err := in.ReadSlice('\n')
		if !errors.Is(err, bufio.ErrBufferFull) {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// named matches what YAML, JSON and Python give to a name, as in api_key: x or "token": "x".
var named = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(["']?)([A-Za-z0-9_.-]+)(["']?[ \t]*:[ \t]*)([^\s,}\])]+|"[^"]*"|'[^']*')`)
})

// blankLine returns a line of a file without values that may be secret.
func blankLine(line string, values redact.Values) string {
	line = values.In(line)
	if !redact.Named(line) { // then no name in it may hold a secret
		return line
	}
	line, end := strings.CutSuffix(line, "\n") // otherwise the end would be part of a value without a closing quote
	line = redact.Text(line)
	line = named().ReplaceAllStringFunc(line, func(found string) string {
		parts := named().FindStringSubmatch(found)
		if !redact.Named(parts[2]) {
			return found
		}
		return parts[1] + parts[2] + parts[3] + redact.Blank
	})
	if end {
		line += "\n"
	}
	return line
}
