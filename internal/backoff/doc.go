// Package backoff computes the pauses between tries of something that many processes try at once: pauses grow, and are random, so that they
// differ between processes.
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
// The bounds are First, 2 First, 4 First and so on, up to Most. Each pause is random, uniformly distributed from half of its bound to the
// whole bound: "equal jitter" in "Exponential Backoff and Jitter" (AWS Architecture Blog, 2015). Without the random part a thousand ranks
// that began together would ask a file server together each time. The other form there, full jitter, has pauses from 0 on. It spreads calls
// a little better, but a bounded number of tries may then be over almost at once, and tries here wait for file systems whose contents take
// seconds to become visible.
package backoff
