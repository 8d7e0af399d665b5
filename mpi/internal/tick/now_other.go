//go:build !amd64 && !arm64

package tick

import "time"

var begun = time.Now()

// Now reads the system's clock, as this architecture has no faster counter here.
func Now() Count { return Count(time.Since(begun)) }
