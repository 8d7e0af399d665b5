package testkit

import "sync"

// Each runs f as every rank at once, and returns their errors by rank.
func Each(size int, f func(rank int) error) []error {
	errs := make([]error, size)
	var tasks sync.WaitGroup
	for rank := range size {
		tasks.Go(func() { errs[rank] = f(rank) })
	}
	tasks.Wait()
	return errs
}
