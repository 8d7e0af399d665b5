// Package backoff spaces the tries of something that many processes try at once: each pause is longer than the one before, and none is the
// same in two processes.
//
//	for wait := (backoff.Backoff{First: 10 * time.Millisecond, Most: time.Second}); ; {
//		err := try()
//		if err == nil || isFinal(err) || wait.Wait(ctx) != nil {
//			return err
//		}
//	}
//
// # The formula
//
// The bounds are First, 2 First, 4 First and so on, up to Most. Each pause is random, and all of its values are equally likely, from a
// half of its bound to the whole of it: "equal jitter" in "Exponential Backoff and Jitter" (AWS Architecture Blog, 2015). Without the
// random part a thousand ranks that began together would ask a file server together each time. The other form there, full jitter, has
// pauses from nothing on. It spreads calls a little better, but then a bounded number of tries may be over at once, and tries here wait
// for views of file systems that take seconds to change.
package backoff
