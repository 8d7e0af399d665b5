package text

// Nearest returns the name that differs from the given one by the fewest edits, the first of several. It returns "" if none is similar
// enough.
func Nearest(name string, names []string) string {
	best, limit := "", max(2, len(name)/3)+1
	for _, candidate := range names {
		if d := distance(name, candidate); d < limit && d < min(len(name), len(candidate)) {
			best, limit = candidate, d
		}
	}
	return best
}

// distance returns the Levenshtein distance of two names in bytes: the least number of insertions, removals and replacements that turn one
// into the other.
func distance(a, b string) int {
	const tooLong = 64 // longer than any name
	if len(a) > tooLong || len(b) > tooLong {
		return max(len(a), len(b))
	}
	row := make([]int, len(b)+1) // edits from the first i bytes of a to the first j of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
