package text

// Nearest returns the name that takes the fewest edits to get from the given one, the first of
// several; empty where none is near enough to be meant.
func Nearest(name string, names []string) string {
	best, limit := "", max(2, len(name)/3)+1
	for _, candidate := range names {
		if d := distance(name, candidate); d < limit && d < min(len(name), len(candidate)) {
			best, limit = candidate, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two names, in bytes: the fewest insertions, removals and
// replacements that make one the other.
func distance(a, b string) int {
	const tooLong = 64 // no name is that long
	if len(a) > tooLong || len(b) > tooLong {
		return max(len(a), len(b))
	}
	row := make([]int, len(b)+1) // from the first i bytes of a to the first j of b
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
