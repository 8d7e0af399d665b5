package slurm

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// maxNumber bounds whole numbers: Slurm keeps them in 32 bits and uses the last few for its own ends.
const maxNumber = math.MaxInt32

// ParseOption checks one key of [slurm] (job.toml's spelling: gpus_per_node) and its value, as
// the TOML decoder gives it (string, int64, bool, float64). The error names the key
// and says what to write instead; for a key that sbatch does not have it matches
// [ErrUnknownOption].
//
// Times and sizes are checked, and passed on as they were spelled. A flag that is
// false gives an Option without a Name, which asks for nothing.
func ParseOption(key string, value any) (Option, error) {
	name := optionName(key)
	kind, known := optionTable[name]
	advice, reserved := reservedOptions[name]
	switch {
	case reserved:
		return Option{}, fmt.Errorf("key %s: it does not belong in [slurm]: %s", clip(key), advice)
	case !known:
		return Option{}, fmt.Errorf("key %s: %w; what a site adds to sbatch goes into extra, as \"--name=value\"", clip(key), ErrUnknownOption)
	case key != optionKey(name):
		return Option{}, fmt.Errorf("key %s: write %s", clip(key), optionKey(name))
	}
	option, err := kind.option(name, value)
	if err != nil {
		return Option{}, fmt.Errorf("key %s: %w", key, err)
	}
	return option, nil
}

// option reads a value of kind k.
func (k optionKind) option(name string, value any) (Option, error) {
	switch v := value.(type) {
	case bool:
		return k.fromBool(name, v)
	case int64:
		if err := k.checkNumber(v); err != nil {
			return Option{}, err
		}
		return Option{Name: name, Value: strconv.FormatInt(v, 10)}, nil
	case string:
		if err := k.checkText(v); err != nil {
			return Option{}, err
		}
		return Option{Name: name, Value: v}, nil
	default:
		return Option{}, k.wants()
	}
}

func (k optionKind) fromBool(name string, v bool) (Option, error) {
	switch k {
	case flagValue, optionalValue:
		if !v {
			return Option{}, nil
		}
		return Option{Name: name, Flag: true}, nil
	case yesNoValue:
		return Option{Name: name, Value: map[bool]string{true: "yes", false: "no"}[v]}, nil
	case zeroOneValue:
		return Option{Name: name, Value: map[bool]string{true: "1", false: "0"}[v]}, nil
	}
	return Option{}, k.wants()
}

func (k optionKind) checkNumber(v int64) error {
	least := int64(0)
	switch k {
	case textValue, flagValue, yesNoValue:
		return k.wants()
	case countValue:
		least = 1
	case optionalValue: // --nice
		least = -maxNumber
	case zeroOneValue:
		if v > 1 {
			return k.wants()
		}
	}
	if v < least || v > maxNumber {
		return fmt.Errorf("%d is out of range: write a number from %d to %d", v, least, int64(maxNumber))
	}
	return nil
}

func (k optionKind) checkText(v string) error {
	switch k {
	case countValue, zeroCount, flagValue, zeroOneValue:
		return k.wants()
	case yesNoValue:
		if v != "yes" && v != "no" {
			return k.wants()
		}
	case sizeValue:
		if _, err := ParseSize(v); err != nil {
			return err
		}
	case timeValue:
		if _, err := ParseTime(v); err != nil {
			return err
		}
	}
	if strings.TrimSpace(v) == "" {
		return errors.New("it is empty; leave the key out")
	}
	return checkWord(v)
}

// wants says what a value of kind k looks like.
func (k optionKind) wants() error {
	return errors.New("write " + [...]string{
		textValue:     "text in quotes",
		numberOrText:  "a whole number, or text in quotes",
		countValue:    "a whole number from 1, without quotes",
		zeroCount:     "a whole number from 0, without quotes",
		sizeValue:     `a size in quotes, such as "32G", or a whole number of MiB`,
		timeValue:     `a time in quotes, such as "01:30:00", or a whole number of minutes`,
		flagValue:     "true or false, without quotes",
		optionalValue: "true or false, or a value in quotes",
		yesNoValue:    `"yes" or "no"`,
		zeroOneValue:  "0 or 1, without quotes",
	}[k])
}
