package text

import "strconv"

// Plural is a number with its noun: 1 node, 2 nodes.
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}
