package transport

// MaxStreams is the largest number of TCP connections of a data link.
const MaxStreams = 16

const (
	// autoStreams and autoConns bound the streams that are picked: for each pair, and for all of a rank.
	autoStreams = 4
	autoConns   = 256
)

// streams is how many TCP connections the data link to a rank is to have, if it shares no memory with this one. Those that are picked
// outdo the limits that networks have for each flow; ranks of many others have flows enough as it is.
func (cfg Config) streams(near bool) int {
	switch {
	case cfg.Streams > 0:
		return cfg.Streams
	case near:
		return 1
	}
	return min(max(autoConns/cfg.Size, 1), autoStreams)
}
