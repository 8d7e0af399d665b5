package slurm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// parseHostlist reads the whole grammar; what it takes is proportional to the list's length,
// whatever the list stands for.
func parseHostlist(list string) ([]pattern, error) {
	if err := checkText(list); err != nil {
		return nil, fmt.Errorf("hostlist %s: %w", clip(list), err)
	}
	var patterns []pattern
	for _, item := range splitItems(list) {
		p, err := parsePattern(item)
		if err != nil {
			return nil, fmt.Errorf("hostlist %s: item %s: %w", clip(list), clip(item), err)
		}
		patterns = append(patterns, p)
	}
	return patterns, nil
}

// checkText refuses what could not be shown or logged safely as part of a name.
func checkText(list string) error {
	if !utf8.ValidString(list) {
		return errors.New("it is not valid UTF-8")
	}
	for _, r := range list {
		if unicode.IsControl(r) && r != '\t' && r != '\n' {
			return fmt.Errorf("it holds the control character %U", r)
		}
	}
	return nil
}

// splitItems cuts the list at the separators outside brackets and leaves empty items out. An
// unbalanced bracket stays in its item, for parsePattern to refuse.
func splitItems(list string) []string {
	inside := false
	return strings.FieldsFunc(list, func(r rune) bool {
		switch r {
		case '[':
			inside = true
		case ']':
			inside = false
		case ',', ' ', '\t', '\n':
			return !inside
		}
		return false
	})
}

func parsePattern(item string) (pattern, error) {
	var p pattern
	length := 0
	for rest := item; ; {
		literal, inside, found := strings.Cut(rest, "[")
		if strings.ContainsRune(literal, ']') {
			return pattern{}, errors.New("a ] without its [")
		}
		p.literals = append(p.literals, literal)
		length += len(literal)
		if !found {
			break
		}
		inside, after, closed := strings.Cut(inside, "]")
		if !closed {
			return pattern{}, errors.New("a [ without its ]")
		}
		b, width, err := parseBracket(inside)
		if err != nil {
			return pattern{}, err
		}
		p.brackets = append(p.brackets, b)
		length += width
		rest = after
	}
	if length > maxNameLen {
		return pattern{}, fmt.Errorf("a name of %d bytes, more than the %d that a host name may have", length, maxNameLen)
	}
	return p, nil
}

// parseBracket reads "1-3,007"; width is the length of the longest number in it.
func parseBracket(inside string) (b bracket, width int, err error) {
	for text := range strings.SplitSeq(inside, ",") {
		s, err := parseSpan(text)
		if err != nil {
			return nil, 0, err
		}
		b = append(b, s)
		width = max(width, len(padded(s.hi, s.width)))
	}
	return b, width, nil
}

func parseSpan(text string) (span, error) {
	low, high, isRange := strings.Cut(text, "-")
	if !isRange {
		high = low
	}
	lo, err := parseNumber(low)
	if err != nil {
		return span{}, fmt.Errorf("range %s: %w", clip(text), err)
	}
	hi, err := parseNumber(high)
	if err != nil {
		return span{}, fmt.Errorf("range %s: %w", clip(text), err)
	}
	if lo > hi {
		return span{}, fmt.Errorf("range %s runs backwards; write the lower number first", clip(text))
	}
	if hi-lo >= MaxNodes {
		return span{}, fmt.Errorf("range %s spans more than %d hosts, which Slurm refuses too", clip(text), MaxNodes)
	}
	// The low bound alone sets the width: [1-02] is 1, 2 and [9-010] is 9, 10.
	return span{lo: lo, hi: hi, width: len(low)}, nil
}

// parseNumber reads decimal digits and nothing else: no sign, no blank, no underscore.
func parseNumber(digits string) (uint64, error) {
	if digits == "" {
		return 0, errors.New("a number is missing")
	}
	if strings.Trim(digits, "0123456789") != "" {
		return 0, fmt.Errorf("%s is not a number; write [1,3-5]", clip(digits))
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is too large a number", clip(digits))
	}
	return n, nil
}
