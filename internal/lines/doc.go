// Package lines combines several streams on one output without mixing their lines.
//
// Each stream has its own [Writer], and all of these write to the same output:
//
//	out := &lines.Writer{To: os.Stdout}
//	defer out.Finish()
//	_, err := io.Copy(out, stream)
//
// A [Queue] keeps its caller from waiting for an output that nobody reads.
package lines
