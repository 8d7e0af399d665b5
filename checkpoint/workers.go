package checkpoint

// SetWorkers changes Options.Workers, for who knows only after Open how many goroutines have room. Nobody may be using d meanwhile.
func (d *Dir) SetWorkers(n int) { d.workers = max(1, n) }
