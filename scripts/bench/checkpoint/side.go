package main

import "context"

// side is one of those that are compared.
type side struct {
	name string
	// prepare makes, in a folder of its own, what run needs; nil: nothing. It is not timed.
	prepare func(ctx context.Context, dir string) error
	// run does the work in that folder, and gives the seconds that it took and the bytes that are on disk for it (0: none).
	run func(ctx context.Context, dir string) (seconds float64, stored int64, err error)
}
