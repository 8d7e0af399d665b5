package jobfile

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"ddpbatch/internal/redact"
	words "ddpbatch/internal/text"
)

// A reader checks the value of one key, as the TOML library decoded it, and stores it in the job. Its
// error names the key and says what to write.
type reader func(j *Job, key toml.Key, v any) error

// maxWhole bounds whole numbers; what is counted in a job file is far smaller, and products of two of them
// still fit an int64.
const maxWhole = math.MaxInt32

// value returns a reader that stores what get makes of a value. what describes the values for which get returns true.
func value[T any](what string, get func(v any) (got T, ok bool), to func(*Job) *T) reader {
	return func(j *Job, key toml.Key, v any) error {
		got, ok := get(v)
		if !ok {
			return mustBe(key, what, v)
		}
		*to(j) = got
		return nil
	}
}

// wholeNumber reads a whole number of at least low.
func wholeNumber(low int64, to func(*Job) *int) reader {
	return taking(fmt.Sprintf("whole number from %d", low), func(j *Job, key toml.Key, v any) error {
		n, ok := v.(int64)
		switch {
		case !ok || n < low:
			return mustBe(key, fmt.Sprintf("a whole number of at least %d", low), v)
		case n > maxWhole:
			return mustBe(key, fmt.Sprintf("at most %d", maxWhole), v)
		}
		*to(j) = int(n)
		return nil
	})
}

// integer reads a whole number. The package that uses it checks its range.
func integer(to func(*Job) *int) reader {
	return taking("whole number", value("a whole number", func(v any) (int, bool) { n, ok := v.(int64); return int(n), ok }, to))
}

// number reads a finite number. The package that uses it checks its range.
func number(to func(*Job) *float64) reader { return taking("number", value("a number", asFloat, to)) }

// positive reads a number above 0.
func positive(to func(*Job) *float64) reader {
	get := func(v any) (float64, bool) { x, ok := asFloat(v); return x, ok && x > 0 }
	return taking("number above 0", value("a number above 0", get, to))
}

// asFloat returns a finite number that is written with or without a decimal point.
func asFloat(v any) (x float64, ok bool) {
	if n, isWhole := v.(int64); isWhole {
		return float64(n), true
	}
	x, ok = v.(float64)
	return x, ok && !math.IsInf(x, 0) && !math.IsNaN(x)
}

// boolean reads true or false.
func boolean(to func(*Job) *bool) reader {
	get := func(v any) (b, ok bool) { b, ok = v.(bool); return b, ok }
	return taking("true or false", answering([]string{"true", "false"}, value("true or false", get, to)))
}

// text reads a text with the property that what describes.
func text(what string, good func(string) bool, to func(*Job) *string) reader {
	return taking("text", value(what, func(v any) (string, bool) {
		s, ok := v.(string)
		return s, ok && good(s)
	}, to))
}

// line reads a text that fits on one line.
func line(to func(*Job) *string) reader { return text("one line of text", isLine, to) }

func isLine(s string) bool { return s != "" && isSafe(s) }

// isSafe reports whether s has no character that ends a line or controls a terminal. An empty text is safe.
func isSafe(s string) bool { return !strings.ContainsFunc(s, words.Unsafe) }

// oneOf reads one of the given words.
func oneOf(to func(*Job) *string, allowed ...string) reader {
	return answering(allowed, text(words.Choice(allowed), func(s string) bool { return slices.Contains(allowed, s) }, to))
}

// word reads one of the known words. The package that uses it checks which word it is; so true and 5 are accepted as words here, and a
// fault then names the right ones.
func word(to func(*Job) *string, known ...string) reader {
	return answering(known, func(j *Job, key toml.Key, v any) error {
		var w string
		switch v := v.(type) {
		case string:
			w = v
		case bool, int64, float64:
			w = describe(v)
		default:
			return mustBe(key, "a word in quotes", v)
		}
		if w == "" {
			return errEmpty(key)
		}
		*to(j) = w
		return nil
	})
}

// errEmpty returns the error for an empty value, which would count as not given.
func errEmpty(key toml.Key) error {
	return fmt.Errorf("%s must not be empty: leave it out instead", key)
}

// duration reads a duration above 0.
func duration(to func(*Job) *time.Duration) reader {
	return durationFrom(1, `a duration, such as "90s" or "5m"`, to)
}

// durationOrOff reads a duration; "0s" switches something off.
func durationOrOff(to func(*Job) *time.Duration) reader {
	return durationFrom(0, `a duration, such as "90s" or "5m", or "0s" for none`, to)
}

func durationFrom(least time.Duration, what string, to func(*Job) *time.Duration) reader {
	return taking("duration", value(what, func(v any) (time.Duration, bool) {
		s, _ := v.(string)
		d, err := time.ParseDuration(s)
		return d, err == nil && d >= least
	}, to))
}

// size reads a number of bytes with a unit, which is a power of 1024.
func size(to func(*Job) *int64) reader {
	return taking("size", value(`a size, such as "512M" or "4G"`, func(v any) (int64, bool) {
		s, _ := v.(string)
		digits := strings.TrimRight(s, "KMGT")
		shift := 10 * (strings.Index("KMGT", s[len(digits):]) + 1)
		n, err := strconv.ParseUint(digits, 10, 63-shift)
		return int64(n) << shift, len(s) == len(digits)+1 && err == nil && n > 0
	}, to))
}

// list reads a list of at least least texts, each with the property that what describes.
func list(least int, what string, good func(string) bool, to func(*Job) *[]string) reader {
	return taking("list of texts", func(j *Job, key toml.Key, v any) error {
		items, ok := v.([]any)
		if !ok {
			return mustBe(key, "a list, each item "+what, v)
		}
		if len(items) < least {
			return errEmpty(key)
		}
		var texts []string // nil if the list is empty, as after reading it from JSON
		for i, item := range items {
			s, ok := item.(string)
			if !ok || !good(s) {
				return fmt.Errorf("item %d of %w", i+1, mustBe(key, what, item))
			}
			texts = append(texts, s)
		}
		*to(j) = texts
		return nil
	})
}

// maxCommands bounds a list of commands that a node runs within a minute.
const maxCommands = 16

// commands reads one command, a list of words, or several, a list of such lists.
func commands(to func(*Job) *[][]string) reader {
	const what = `a command, such as ["nhc"], or a list of commands, such as [["nhc"], ["nvidia-smi", "-L"]]`
	return taking("command, or list of commands", func(j *Job, key toml.Key, v any) error {
		items, ok := v.([]any)
		if !ok {
			return mustBe(key, what, v)
		}
		if len(items) == 0 {
			return errEmpty(key)
		}
		if _, isWord := items[0].(string); isWord {
			items = []any{items}
		}
		if len(items) > maxCommands {
			return fmt.Errorf("%s has %d commands; at most %d are allowed: write one that runs them all", key, len(items), maxCommands)
		}
		var all [][]string
		for _, item := range items {
			list, _ := item.([]any)
			var command []string
			for _, word := range list {
				s, ok := word.(string)
				if !ok || !noNUL(s) {
					return mustBe(key, what, v)
				}
				command = append(command, s)
			}
			if len(command) == 0 || command[0] == "" {
				return mustBe(key, what, v)
			}
			all = append(all, command)
		}
		*to(j) = all
		return nil
	})
}

// counts reads a list of at least one whole number from 1.
func counts(key toml.Key, v any) ([]int, error) {
	return integers(key, v, "a whole number of at least 1", func(n int64) bool { return n >= 1 && n <= maxWhole })
}

// integers reads a list of at least one whole number, each with the property that what describes.
func integers(key toml.Key, v any, what string, good func(int64) bool) ([]int, error) {
	items, ok := v.([]any)
	if !ok || len(items) == 0 {
		return nil, mustBe(key, "a list of at least one whole number", v)
	}
	numbers := make([]int, len(items))
	for i, item := range items {
		n, ok := item.(int64)
		if !ok || !good(n) {
			return nil, fmt.Errorf("item %d of %w", i+1, mustBe(key, what, item))
		}
		numbers[i] = int(n)
	}
	return numbers, nil
}

// mustBe returns the error that says what the value of a key must be, and what it is, unless that may be secret.
func mustBe(key toml.Key, what string, v any) error {
	shown := describe(v)
	if redact.Named(key.String()) {
		shown = typeOf(v)
	}
	return fmt.Errorf("%s must be %s, not %s", key, what, shown)
}

// typeOf is like describe, for a value whose text must not be shown.
func typeOf(v any) string {
	switch v.(type) {
	case string:
		return "that text"
	case int64, float64:
		return "a number"
	case bool:
		return "true or false"
	}
	return describe(v)
}

// describe describes a value for a message: its type, unless that is obvious, and its text.
func describe(v any) string {
	switch v := v.(type) {
	case string:
		return "the text " + short(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	case time.Time:
		return "a date or time (write it in quotes)"
	case map[string]any:
		return "a table"
	case []map[string]any:
		return "a list of tables"
	case []any:
		if len(v) == 0 {
			return "an empty list"
		}
	}
	return "a list"
}

// short quotes a text, and shortens it if it is long.
func short(s string) string { return redact.Quoted(s, redact.Shown) }
