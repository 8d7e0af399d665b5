package data

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// parseNumber reads a finite decimal number. Of what ParseFloat accepts it leaves out hexadecimal, "_", "inf" and "nan".
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

// parseWhole reads what parseNumber accepts, if it is exactly a whole number from 0 up to maxClasses, however it is
// written: 3, 3.0 as pandas has it, 3.000e+00 as numpy.savetxt has it. A float would round
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
	point := len(digits) - len(fraction) + exponent // digits before it
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

// excerpt quotes text for an error, cut where it is long.
func excerpt(text []byte) string {
	if len(text) > 40 {
		return strconv.Quote(string(text[:40])) + "..."
	}
	return strconv.Quote(string(text))
}
