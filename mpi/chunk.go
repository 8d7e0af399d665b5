package mpi

// frameBytes is how much of a buffer goes into one frame. Larger frames do not
// fit the caches between the copy out of the socket and the reduction; smaller
// ones cost more system calls.
const frameBytes = 256 << 10

// chunk is the i-th of n parts of s, for any i modulo n. The parts follow one
// another; their lengths differ by one at most, the longer ones come first.
func chunk[T any](s []T, i, n int) []T {
	i = ((i % n) + n) % n
	size, longer := len(s)/n, len(s)%n
	lo := i*size + min(i, longer)
	hi := lo + size
	if i < longer {
		hi++
	}
	return s[lo:hi]
}

// frames is how many frames n elements of T take. No elements take one, too: it carries the
// fingerprint.
func frames[T Number](n int) int {
	per := frameBytes / sizeOf[T]()
	return max(1, (n+per-1)/per)
}

// frame is what the i-th of these frames carries.
func frame[T Number](s []T, i int) []T {
	per := frameBytes / sizeOf[T]()
	return s[i*per : min((i+1)*per, len(s))]
}
