package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"ddpbatch/internal/jobfile"
)

// The setters make a value of run's options from a flag's text, or say what is wrong with it.
type setter = func(o *runOptions, text string) error

func switchOf(field func(*runOptions) *bool) setter {
	return func(o *runOptions, text string) error {
		// PET_ variables of switches are numbers (torch.distributed.argparse_util)
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is neither 1 nor 0", text)
		}
		*field(o) = n != 0
		return nil
	}
}

func numberOf(lowest, highest int, field func(*runOptions) *int) setter {
	return func(o *runOptions, text string) (err error) {
		*field(o), err = numberIn(text, lowest, highest)
		return err
	}
}

// numberIn reads a whole number within bounds.
func numberIn(text string, lowest, highest int) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < lowest || n > highest {
		return 0, fmt.Errorf("%q is no whole number from %d to %d", text, lowest, highest)
	}
	return n, nil
}

// longestText is how long a name may be that goes into variables and messages, in bytes.
const longestText = 512

func textOf(field func(*runOptions) *string) setter {
	return func(o *runOptions, text string) error {
		if len(text) > longestText || strings.ContainsFunc(text, unicode.IsControl) {
			return fmt.Errorf("%.40q is longer than %d bytes, or has control characters", text, longestText)
		}
		*field(o) = text
		return nil
	}
}

func pathOf(field func(*runOptions) *string) setter {
	return func(o *runOptions, text string) error {
		if len(text) > 4096 || strings.ContainsRune(text, 0) { // PATH_MAX of limits.h
			return fmt.Errorf("%.40q is no path: it is longer than 4096 bytes, or has a NUL", text)
		}
		*field(o) = text
		return nil
	}
}

func wordOf(field func(*runOptions) *string, words ...string) setter {
	return func(o *runOptions, text string) error {
		if !slices.Contains(words, text) {
			return unknownWord(text, words)
		}
		*field(o) = text
		return nil
	}
}

// unknownWord says which words there are, and which one may be meant.
func unknownWord(text string, words []string) error {
	if near := jobfile.Nearest(text, words); near != "" {
		return fmt.Errorf("%q is none of %s: did you mean %s?", text, strings.Join(words, ", "), near)
	}
	return fmt.Errorf("%q is none of %s", text, strings.Join(words, ", "))
}

func spanOf(lowest time.Duration, field func(*runOptions) *time.Duration) setter {
	return func(o *runOptions, text string) (err error) {
		*field(o), err = parseSpan(text, lowest)
		return err
	}
}

// spanOrNone also takes 0, which means never.
func spanOrNone(lowest time.Duration, field func(*runOptions) *time.Duration) setter {
	return func(o *runOptions, text string) (err error) {
		if span, err := parseSpan(text, 0); err == nil && span == 0 {
			*field(o) = 0
			return nil
		}
		*field(o), err = parseSpan(text, lowest)
		return err
	}
}

// longestSpan is more than any job's time: what is beyond are milliseconds, or a slip of the pen.
const longestSpan = 366 * 24 * time.Hour

// parseSpan reads a time: seconds, as torchrun has them, or a duration such as 1m30s.
func parseSpan(text string, lowest time.Duration) (time.Duration, error) {
	span, err := time.ParseDuration(text)
	if seconds, failed := strconv.ParseFloat(text, 64); failed == nil {
		span, err = -1, nil
		if seconds >= 0 && seconds <= longestSpan.Seconds() { // false for NaN, too
			span = time.Duration(seconds * float64(time.Second))
		}
	}
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no time: write seconds, or a duration such as 90s or 5m", text)
	case span < lowest || span > longestSpan:
		return 0, fmt.Errorf("%q is not between %v and %v", text, lowest, longestSpan)
	}
	return span, nil
}
