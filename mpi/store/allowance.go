package store

import "sync/atomic"

// allowance is a number of bytes that many share.
type allowance struct {
	most int64
	used atomic.Int64
}

// take tells whether size bytes were left.
func (a *allowance) take(size int) bool {
	if a.used.Add(int64(size)) <= a.most {
		return true
	}
	a.used.Add(-int64(size))
	return false
}

func (a *allowance) give(size int) { a.used.Add(-int64(size)) }
