// Package lines puts several streams together on one output without mixing their lines.
//
// Each stream has a [Writer] of its own, all of which write to the same place:
//
//	out := &lines.Writer{To: os.Stdout}
//	defer out.Finish()
//	_, err := io.Copy(out, stream)
//
// A [Queue] keeps who writes from waiting for an output that nobody reads.
package lines
