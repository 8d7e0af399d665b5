package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"ddpbatch/internal/text"
)

// cell is a cell of a line, without quotes and the spaces around it.
type cell struct {
	text   []byte
	column int // of its first byte in the line, from 1
}

// betweenLooks is how many bytes of a file are read between two checks of the context.
const betweenLooks = 1 << 20

// csvLines splits a CSV file into lines and cells. Cells are views of the file wherever they can be.
type csvLines struct {
	rest      []byte
	delimiter byte
	line      int    // number of the line that next returned, from 1
	passed    int    // bytes since ctx was checked
	cells     []cell // reused
}

func newCSVLines(file []byte, delimiter string) csvLines {
	l := csvLines{rest: bytes.TrimPrefix(file, []byte("\xef\xbb\xbf")), delimiter: ','} // Excel writes this mark
	if delimiter != "" {
		l.delimiter = delimiter[0]
	}
	return l
}

// next returns the cells of the next line that is not empty, or nil at the end. They are valid until the next call. Errors
// begin with line and column, except for ctx's.
func (l *csvLines) next(ctx context.Context) ([]cell, error) {
	for len(l.rest) > 0 {
		l.line++
		// A longer line is not read to its end: it may be a hole of the file, of any size.
		line, _, ended := bytes.Cut(l.rest[:min(len(l.rest), maxCSVLine+1)], []byte{'\n'})
		if len(line) > maxCSVLine {
			return nil, fmt.Errorf("%d:1: a line of more than %d MiB: it is not a table, or the file is incomplete", l.line, maxCSVLine>>20)
		}
		l.rest = l.rest[len(line):]
		if ended {
			l.rest = l.rest[1:]
		}
		if l.passed += len(line) + 1; l.passed >= betweenLooks {
			if l.passed = 0; ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
		line = bytes.TrimSuffix(line, []byte{'\r'})
		if len(bytes.Trim(line, " ")) == 0 {
			continue
		}
		if err := l.split(line); err != nil {
			return nil, fmt.Errorf("%d:%w", l.line, err)
		}
		return l.cells, nil
	}
	return nil, nil
}

func (l *csvLines) split(line []byte) error {
	l.cells = l.cells[:0]
	for at := 0; ; at++ { // skip the delimiter
		for at < len(line) && l.isSpace(line[at]) {
			at++
		}
		if len(l.cells) == maxCSVColumns {
			return fmt.Errorf("%d: more than %d cells", at+1, maxCSVColumns)
		}
		c := cell{column: at + 1}
		if at < len(line) && line[at] == '"' {
			n, err := c.unquote(line[at:])
			if err != nil {
				return fmt.Errorf("%d: %w", c.column, err)
			}
			for at += n; at < len(line) && l.isSpace(line[at]); at++ {
			}
			if at < len(line) && line[at] != l.delimiter {
				return fmt.Errorf("%d: text after a closing quote", at+1)
			}
		} else {
			n := bytes.IndexByte(line[at:], l.delimiter)
			if n < 0 {
				n = len(line) - at
			}
			for c.text = line[at : at+n]; len(c.text) > 0 && l.isSpace(c.text[len(c.text)-1]); {
				c.text = c.text[:len(c.text)-1]
			}
			at += n
		}
		if len(c.text) > maxCSVCell {
			return fmt.Errorf("%d: a cell of more than %d bytes: it is not a number or name", c.column, maxCSVCell)
		}
		l.cells = append(l.cells, c)
		if at == len(line) {
			return nil
		}
	}
}

func (l *csvLines) isSpace(b byte) bool { return (b == ' ' || b == '\t') && b != l.delimiter }

// unquote parses a cell that begins with a quote, up to the closing quote; a doubled quote stands for one. It returns the length including
// the quotes.
func (c *cell) unquote(b []byte) (int, error) {
	doubled := false
	for at := 1; ; at += 2 {
		n := bytes.IndexByte(b[at:], '"')
		if n < 0 {
			return 0, errors.New("a quote is not closed on its line")
		}
		at += n
		if at+1 == len(b) || b[at+1] != '"' {
			c.text = b[1:at]
			if doubled {
				c.text = bytes.ReplaceAll(c.text, []byte(`""`), []byte(`"`))
			}
			return at + 1, nil
		}
		doubled = true
	}
}

// parseNumber parses a finite decimal number. Of what ParseFloat accepts it refuses hexadecimal, "_", "inf" and "nan".
func parseNumber(text []byte) (float32, error) {
	if len(text) == 0 {
		return 0, errors.New("the cell is missing")
	}
	for _, b := range text {
		if (b < '0' || b > '9') && b != '.' && b != '-' && b != '+' && b != 'e' && b != 'E' {
			return 0, fmt.Errorf("%s is not a finite number", excerpt(text))
		}
	}
	v, err := strconv.ParseFloat(string(text), 32)
	if errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Errorf("%s is too large for float32", excerpt(text))
	}
	if err != nil {
		return 0, fmt.Errorf("%s is not a finite number", excerpt(text))
	}
	return float32(v), nil
}

// parseWhole parses what parseNumber accepts, if it is exactly a whole number from 0 to maxClasses, in any
// notation: 3, 3.0 as pandas writes it, 3.000e+00 as numpy.savetxt writes it. Parsing it as a float would round
// 0.99999999999 to 1.
func parseWhole(text []byte) (n int, ok bool) {
	mantissa, exponent := string(text), 0
	if i := strings.IndexAny(mantissa, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(mantissa[i+1:]); err != nil {
			return 0, false
		}
		mantissa = mantissa[:i]
	}
	negative := strings.HasPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(strings.TrimLeft(mantissa, "+-"), ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	point := len(digits) - len(fraction) + exponent // number of digits before the decimal point
	digits = strings.TrimRight(digits, "0")
	if digits == "" {
		return 0, true
	}
	if negative || point < len(digits) || point > len(strconv.Itoa(maxClasses)) {
		return 0, false
	}
	n, err := strconv.Atoi(digits + strings.Repeat("0", point-len(digits)))
	return n, err == nil && n <= maxClasses
}

// excerpt quotes text for an error, and shortens it if it is long.
func excerpt(b []byte) string { return text.Quoted(string(b), 40) }
