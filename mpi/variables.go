package mpi

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"ddpbatch/internal/auth"
)

// maxWorld is the largest number of ranks, attempts or restarts that is believed.
const maxWorld = 1 << 20

// variables reads environment variables and collects what is wrong with them.
type variables struct {
	lookup func(string) (string, bool)
	faults []string
}

// get is the first of names that is set to something, or empty.
func (v *variables) get(names ...string) string {
	for _, name := range names {
		if text, _ := v.lookup(name); text != "" {
			return text
		}
	}
	return ""
}

func (v *variables) fault(name, format string, args ...any) {
	v.faults = append(v.faults, name+" "+fmt.Sprintf(format, args...))
}

// err shows all faults in one line.
func (v *variables) err() error {
	if len(v.faults) == 0 {
		return nil
	}
	return errors.New(strings.Join(v.faults, "; "))
}

// number reads a decimal number between low and high. What is not set has the text
// missing; if that is empty too, it is a fault.
func (v *variables) number(name string, low, high int, missing string) int {
	text := v.get(name)
	if text == "" {
		if text = missing; text == "" {
			v.fault(name, "is not set: start the ranks with `ddpbatch run`, or set it for each of them")
			return 0
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		v.fault(name, "is %q: it must be a number from %d to %d", text, low, high)
		return 0
	}
	return n
}

// secret is what name is set to, or else the run's, of the user's key file, with the path of that.
func (v *variables) secret(name, run string) (secret auth.Secret, keyFile string) {
	text := v.get(name)
	if text == "" {
		return v.keySecret(name, run)
	}
	s, err := auth.ParseSecret(text)
	if err != nil {
		v.fault(name, "is not usable: %v", err)
	}
	return s, ""
}

func (v *variables) keySecret(name, run string) (secret auth.Secret, keyFile string) {
	path, err := auth.KeyPath(v.lookup)
	if err == nil {
		secret, err = auth.RunSecret(path, run)
	}
	if err != nil {
		v.fault(name, "is not set, and ranks talk only to ranks that know it: start them with `ddpbatch run`, or give each the same "+
			"64 hexadecimal digits (`openssl rand -hex 32` makes some); nor is there a key file: %v", err)
	}
	return secret, path
}
