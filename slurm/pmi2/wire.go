package pmi2

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// maxMessage bounds the length that a message may announce: PMI-2's own buffers have 64 KiB.
const maxMessage = 64 << 10

// lengthDigits is the size of a message's length, in characters.
const lengthDigits = 6

// wire sends and reads messages.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
}

func newWire(conn net.Conn) wire { return wire{conn, bufio.NewReader(conn)} }

// field is a word "key=value;" of a message.
type field struct{ key, value string }

// until makes every read and write fail once ctx ends, until the returned function is called.
func (w wire) until(ctx context.Context) func() {
	// SetDeadline fails only if the connection is closed, which the next read reports
	_ = w.conn.SetDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = w.conn.SetDeadline(time.Unix(1, 0)) })
	return func() { stop() }
}

// greet agrees on the version. It is the only exchange without a length.
func (w wire) greet() error {
	if _, err := io.WriteString(w.conn, "cmd=init pmi_version=2 pmi_subversion=0\n"); err != nil {
		return err
	}
	line, err := w.line()
	if err != nil {
		return err
	}
	answer := make(map[string]string)
	for _, word := range strings.Fields(line) {
		key, value, _ := strings.Cut(word, "=")
		answer[key] = value
	}
	if answer["cmd"] != "response_to_init" || answer["rc"] != "0" || answer["pmi_version"] != "2" {
		return fmt.Errorf("Slurm does not speak PMI-2 here: it answered %.100q", line)
	}
	return nil
}

// line reads up to the end of the line, which may have at most maxLine bytes.
func (w wire) line() (string, error) {
	const maxLine = 1 << 10
	var line []byte
	for len(line) < maxLine {
		b, err := w.in.ReadByte()
		if err != nil {
			return "", ended(err)
		}
		if b == '\n' {
			return string(line), nil
		}
		line = append(line, b)
	}
	return "", fmt.Errorf("Slurm's first line does not end: %.100q", line)
}

// call sends a command and returns the fields of its answer. It returns an error if Slurm refused the command.
func (w wire) call(cmd string, fields ...field) (map[string]string, error) {
	var text strings.Builder
	text.WriteString("cmd=" + cmd + ";")
	for _, f := range fields {
		text.WriteString(f.key + "=" + f.value + ";")
	}
	if _, err := fmt.Fprintf(w.conn, "%*d%s", lengthDigits, text.Len(), text.String()); err != nil {
		return nil, err
	}
	message, err := w.message()
	if err != nil {
		return nil, err
	}
	answer, err := parse(message)
	switch {
	case err != nil:
		return nil, err
	case answer["cmd"] != cmd+"-response":
		return nil, fmt.Errorf("Slurm answered %.60q to %s", answer["cmd"], cmd)
	case answer["rc"] != "0":
		return nil, fmt.Errorf("Slurm refused %s: code %.20q %.200q", cmd, answer["rc"], answer["errmsg"])
	}
	return answer, nil
}

// message reads a length and so many bytes.
func (w wire) message() (string, error) {
	var digits [lengthDigits]byte
	if _, err := io.ReadFull(w.in, digits[:]); err != nil {
		return "", ended(err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(digits[:])), 10, 32)
	if err != nil || n > maxMessage {
		return "", fmt.Errorf("Slurm announces a message of %q bytes; at most %d are allowed", digits[:], maxMessage)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(w.in, text); err != nil {
		return "", ended(err)
	}
	return string(text), nil
}

// parse reads the words of a message. A semicolon in a value is written twice.
func parse(message string) (map[string]string, error) {
	fields := make(map[string]string)
	for rest := message; rest != ""; {
		key, after, ok := strings.Cut(rest, "=")
		if !ok || key == "" || strings.Contains(key, ";") {
			return nil, fmt.Errorf("Slurm's message has no key=value at %.60q", rest)
		}
		var value strings.Builder
		for {
			part, tail, ok := strings.Cut(after, ";")
			if !ok {
				return nil, fmt.Errorf("Slurm's message ends within the value of %.60q", key)
			}
			value.WriteString(part)
			if !strings.HasPrefix(tail, ";") {
				rest = tail
				break
			}
			value.WriteByte(';')
			after = tail[1:]
		}
		if _, twice := fields[key]; twice {
			return nil, fmt.Errorf("Slurm's message says %.60q twice", key)
		}
		fields[key] = value.String()
	}
	return fields, nil
}

// plain reports whether a text can stand in a message without escapes.
func plain(s string) bool { return s != "" && len(s) < 256 && !strings.ContainsAny(s, ";= \n\x00") }

func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("Slurm closed the connection")
	}
	return err
}
