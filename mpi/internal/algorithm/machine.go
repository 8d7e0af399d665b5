package algorithm

// Machine is what the costs of algorithms are reckoned with: the model of Hockney (1994),
// with a term for the reduction. Seconds, and seconds a byte.
type Machine struct {
	Alpha float64 // latency of a message
	Beta  float64 // time of a byte on the way
	Gamma float64 // time to reduce a byte
}
