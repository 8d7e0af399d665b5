package engine

// Call is what all ranks of a group must agree on: the fingerprint of one
// collective, or the label of a message. Only Group and Seq mean something to the engine;
// the rest it compares.
type Call struct {
	Group      uint64
	Seq        uint64 // of a collective: from 1, in the order of calls; of a message: its tag
	Count      uint64 // elements
	Root       int32
	Collective uint8
	Element    uint8
	Op         uint8
	Algorithm  uint8
}
