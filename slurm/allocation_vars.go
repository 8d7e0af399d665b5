package slurm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// errNotSet marks the error that none of some variables is set.
var errNotSet = errors.New("is not set; was the environment cleared (env -i, a container)?")

// environ is the environment as os.LookupEnv gives it.
type environ func(string) (string, bool)

// variable is one that is set; it prints as NAME="value", shortened where long.
type variable struct{ name, value string }

func (v variable) String() string { return v.name + "=" + clip(v.value) }

// first returns the first of the variables that is set to something.
func (e environ) first(names ...string) (variable, bool) {
	for _, name := range names {
		if value, ok := e(name); ok && value != "" && value != "(null)" {
			return variable{name, value}, true
		}
	}
	return variable{}, false
}

// need is first, with an error that names them all where none is set.
func (e environ) need(names ...string) (variable, error) {
	if v, ok := e.first(names...); ok {
		return v, nil
	}
	return variable{}, fmt.Errorf("%s %w", strings.Join(names, " or "), errNotSet)
}

// number reads a whole number that is not negative from the first variable that is set.
func (e environ) number(names ...string) (int, error) {
	v, err := e.need(names...)
	if err != nil {
		return 0, err
	}
	n, err := parseInt(v.value)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", v.name, err)
	}
	return n, nil
}

// numberOr is number, with what to return where none of the variables is set.
func (e environ) numberOr(absent int, names ...string) (int, error) {
	n, err := e.number(names...)
	if errors.Is(err, errNotSet) {
		return absent, nil
	}
	return n, err
}

// id reads one of Slurm's ids, which have 32 bits, and keeps it as text; "" where it is not set.
func (e environ) id(name string) (string, error) {
	v, set := e.first(name)
	if !set {
		return "", nil
	}
	if _, err := strconv.ParseUint(v.value, 10, 32); err != nil {
		return "", fmt.Errorf("%s is not an id of Slurm's", v)
	}
	return v.value, nil
}
