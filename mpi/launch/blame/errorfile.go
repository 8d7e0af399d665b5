package blame

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"ddpbatch/internal/text"
	"ddpbatch/internal/vfs"
)

const (
	maxErrorFile = 1 << 20 // bytes; more than any traceback that a person wants to read
	maxMessage   = 4 << 10
	maxStack     = 32 << 10
)

// TorchError is what a worker wrote to its TORCHELASTIC_ERROR_FILE, as PyTorch's decorator @record does
// (torch.distributed.elastic.multiprocessing.errors).
type TorchError struct {
	Message string    `json:"message"`         // "ValueError: text"
	Stack   string    `json:"stack,omitempty"` // the traceback; "": none
	Time    time.Time `json:"time,omitzero"`   // by the worker's clock, in whole seconds if PyTorch wrote it; zero: unknown
	Code    int       `json:"code,omitempty"`  // exit code, negative for a signal, if an agent below this one added it
}

// errorFile is the content of the file: its message is a text or an object.
type errorFile struct {
	Message   json.RawMessage `json:"message"`
	Timestamp json.RawMessage `json:"timestamp,omitempty"` // only if the message is a text
}

type errorMessage struct {
	Message   json.RawMessage `json:"message"`
	ErrorCode json.RawMessage `json:"errorCode,omitempty"`
	ExtraInfo json.RawMessage `json:"extraInfo"`
}

type extraInfo struct {
	Stack     json.RawMessage `json:"py_callstack,omitempty"`
	Timestamp json.RawMessage `json:"timestamp,omitempty"`
}

// ReadErrorFile reads an error file. The error is fs.ErrNotExist if the worker wrote none: there is no file, or the one that was made for
// it is empty. Any other error means that the file is malformed, or that the worker was killed while it wrote.
func ReadErrorFile(path string) (*TorchError, error) {
	text, err := readRegular(path)
	if err == nil && len(text) == 0 {
		err = fmt.Errorf("%s is empty: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("read a worker's error file: %w", err)
	}
	e, err := parseErrorFile(text)
	if err != nil {
		return nil, fmt.Errorf("read a worker's error file: %s: %w", path, err)
	}
	return e, nil
}

// readRegular reads a file that a worker made. A program may have put a pipe there, or an endless text.
func readRegular(path string) ([]byte, error) {
	f, _, err := vfs.OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxErrorFile+1))
	if err == nil && len(text) > maxErrorFile {
		err = fmt.Errorf("%s is longer than %d bytes", path, maxErrorFile)
	}
	return text, err
}

func parseErrorFile(data []byte) (*TorchError, error) {
	var file errorFile
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, err
	}
	e := &TorchError{Time: timestamp(file.Timestamp)}
	switch kind(file.Message) {
	case '"':
		e.Message = words(file.Message)
	case '{':
		var m errorMessage
		if err := json.Unmarshal(file.Message, &m); err != nil {
			return nil, err
		}
		var extra extraInfo
		_ = json.Unmarshal(m.ExtraInfo, &extra) // the message counts without it, too
		e.Message, e.Stack, e.Time = words(m.Message), words(extra.Stack), timestamp(extra.Timestamp)
		if code, err := strconv.ParseInt(scalar(m.ErrorCode), 10, 32); err == nil {
			e.Code = int(code)
		}
	default:
		return nil, errors.New("its message is missing")
	}
	e.Message, e.Stack = text.Cut(e.Message, maxMessage), cutFront(e.Stack, maxStack)
	return e, nil
}

// kind is the first byte of a JSON value.
func kind(value json.RawMessage) byte {
	value = bytes.TrimSpace(value)
	if len(value) == 0 {
		return 0
	}
	return value[0]
}

// words is the text of a JSON string, or any other value as it is written.
func words(value json.RawMessage) string {
	var s string
	if kind(value) == 0 || json.Unmarshal(value, &s) == nil {
		return s
	}
	return strings.ToValidUTF8(string(value), "?")
}

// scalar is the text of a number, whether or not it is written as a string.
func scalar(value json.RawMessage) string { return strings.TrimSpace(strings.Trim(string(value), `"`)) }

// timestamp reads seconds since 1970. An impossible time gives zero.
func timestamp(value json.RawMessage) time.Time {
	const last = 253402300799 // the end of the year 9999, the last that times in JSON can have (RFC 3339)
	seconds, err := strconv.ParseFloat(scalar(value), 64)
	if err != nil || !(seconds > 0) || seconds > last {
		return time.Time{}
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)).UTC()
}

// cutFront keeps the end of a text, beginning with a whole line.
func cutFront(s string, most int) string {
	if len(s) <= most {
		return s
	}
	s = s[len(s)-most:]
	if _, rest, ok := strings.Cut(s, "\n"); ok {
		s = rest
	}
	return strings.ToValidUTF8(s, "")
}

// traceback is one Python traceback: the exception, and what is known of it.
type traceback struct {
	exception []string // the line "Type: text" and the lines of text that follow it
	frames    []string // where it was raised: "File "train.py", line 9, in main"
	main      bool     // it begins in the main program: the exception ended the process, and was not only logged
	aside     bool     // the interpreter ignored the exception, or it only ended a thread
	chained   bool     // the exception before caused it: it was raised while that was handled, or from it
}

const (
	tracebackHead  = "Traceback (most recent call last):"
	exceptionLines = 8 // lines of an exception's text that count
)

// rankLabel is what newer versions of PyTorch print before each line of a traceback.
var rankLabel = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\[rank[0-9]+\]:[ ]?`) })

// exceptionLine matches a printed exception: its type, and its text if it has one (traceback's format_exception_only).
var exceptionLine = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Warning)(:|$)`)
})

// tracebacks finds the tracebacks in a rank's last lines, in order. It leaves out those whose exception is cut off.
func tracebacks(lines []string) []traceback {
	var found []traceback
	var link, aside bool // whether such lines came after the last traceback
	for i := 0; i < len(lines); i++ {
		line := rankLabel().ReplaceAllString(lines[i], "")
		switch {
		case strings.HasPrefix(line, tracebackHead):
			t := traceback{chained: link && len(found) > 0, aside: aside}
			i = t.read(lines, i+1)
			if len(t.exception) > 0 {
				found = append(found, t)
			}
			link, aside = false, false
		case isLink(line):
			link = true
		case isAside(line):
			aside = true
		}
	}
	return found
}

// isLink reports whether the line says that the traceback before it caused the one after it.
func isLink(line string) bool {
	return strings.HasPrefix(line, "During handling of the above exception") ||
		strings.HasPrefix(line, "The above exception was the direct cause")
}

// isAside reports whether the line says that the traceback after it did not end the process.
func isAside(line string) bool {
	return strings.HasPrefix(line, "Exception ignored in") || strings.HasPrefix(line, "Exception in thread")
}

// read reads a traceback whose head is the line before at, and returns the index of its last line.
func (t *traceback) read(lines []string, at int) int {
	frames := true
	for i := at; i < len(lines); i++ {
		line := rankLabel().ReplaceAllString(lines[i], "")
		indented := strings.HasPrefix(line, " ")
		switch {
		case frames && indented:
			if frame := strings.TrimSpace(line); strings.HasPrefix(frame, `File "`) {
				t.frames = append(t.frames, frame)
			}
			if i == at {
				t.main = strings.Contains(line, ", in <module>") || strings.Contains(line, ", in _run_module_as_main")
			}
		case strings.HasPrefix(line, tracebackHead), isLink(line), isAside(line):
			return i - 1
		case frames && strings.TrimSpace(line) == "": // cut off
			return i
		default:
			frames = false
			if len(t.exception) == exceptionLines {
				return i - 1
			}
			t.exception = append(t.exception, line)
		}
	}
	return len(lines)
}

// chainOf returns the chain of exceptions that ended the process, oldest first: the main program's, or else the last one.
func chainOf(all []traceback) []traceback {
	var chains [][]traceback
	for _, t := range all {
		if t.chained && len(chains) > 0 {
			chains[len(chains)-1] = append(chains[len(chains)-1], t)
			continue
		}
		chains = append(chains, []traceback{t})
	}
	for _, fits := range []func(traceback) bool{
		func(t traceback) bool { return t.main },
		func(t traceback) bool { return !t.aside },
		func(traceback) bool { return true },
	} {
		for i := len(chains) - 1; i >= 0; i-- {
			for _, t := range chains[i] {
				if fits(t) {
					return chains[i]
				}
			}
		}
	}
	return nil
}
