package algorithm

// The tables of the collectives that move bytes. Where costs are equal the first entry is the better one. A function gives the
// same table to all, which nobody changes; the entries that also take blocks of different lengths come first.
//
// All these algorithms keep one rule, so that ranks that make different calls find out in that call, and neither hang nor
// return as if nothing were wrong: however the ranks are parted in two, some rank on each side cannot return before it
// has heard from the other side; and each side alone, as far as it comes, sends the other a message. (A message carries the call
// that it is of, and is checked when it comes.) Where the messages that the work needs would not do, empty ones go the other
// way: from each rank to its parent in a broadcast or scatter, from the parent to the rank in a gather or barrier. They are
// sent at once, so they add no latency. Blocks without bytes are sent as empty messages, too.

var (
	broadcasts = [...]Entry[BroadcastFunc]{
		{Traits{Code: 1, Name: "binomial", Canonical: true, Cost: costBroadcastBinomial}, broadcastBinomial},
		{Traits{Code: 2, Name: "double_tree", Canonical: true, Cost: costBroadcastDoubleTree}, broadcastDoubleTree},
		{Traits{Code: 3, Name: "chain", Canonical: true, Cost: costBroadcastChain}, broadcastChain},
		{Traits{Code: 4, Name: "scatter_allgather", Canonical: true, Cost: costBroadcastScatter}, broadcastScatter},
		{Traits{Code: 5, Name: "star", Canonical: true, Cost: costBroadcastStar}, broadcastStar},
	}

	allGathers = [...]Entry[AllGatherFunc]{
		{Traits{Code: 1, Name: "recursive_doubling", Canonical: true, Fits: powerOfTwo, Cost: costAllGatherDoubling}, allGatherDoubling},
		{Traits{Code: 2, Name: "direct", Canonical: true, Cost: costAllGatherDirect}, allGatherDirect},
		{Traits{Code: 3, Name: "bruck", Canonical: true, Cost: costAllGatherBruck}, allGatherBruck},
		{Traits{Code: 4, Name: "neighbour_exchange", Canonical: true, Fits: even, Cost: costAllGatherNeighbour}, allGatherNeighbour},
		{Traits{Code: 5, Name: "ring", Canonical: true, Cost: costAllGatherRing}, allGatherRing},
	}

	gathers = [...]Entry[GatherFunc]{
		{Traits{Code: 1, Name: "linear", Canonical: true, Cost: costGatherLinear}, gatherLinear},
		{Traits{Code: 2, Name: "binomial", Canonical: true, Cost: costGatherBinomial}, gatherBinomial},
	}

	scatters = [...]Entry[ScatterFunc]{
		{Traits{Code: 1, Name: "linear", Canonical: true, Cost: costScatterLinear}, scatterLinear},
		{Traits{Code: 2, Name: "binomial", Canonical: true, Cost: costScatterBinomial}, scatterBinomial},
	}

	allToAlls = [...]Entry[AllToAllFunc]{
		{Traits{Code: 1, Name: "direct", Canonical: true, Cost: costAllToAllDirect}, allToAllDirect},
		{Traits{Code: 2, Name: "pairwise", Canonical: true, Cost: costAllToAllPairwise}, allToAllPairwise},
		{Traits{Code: 3, Name: "bruck", Canonical: true, Cost: costAllToAllBruck}, allToAllBruck},
	}

	barriers = [...]Entry[BarrierFunc]{
		{Traits{Code: 1, Name: "dissemination", Canonical: true, Cost: costBarrierDissemination}, barrierDissemination},
		{Traits{Code: 2, Name: "binomial", Canonical: true, Cost: costBarrierBinomial}, barrierBinomial},
		{Traits{Code: 3, Name: "star", Canonical: true, Cost: costBarrierStar}, barrierStar},
	}
)

// Broadcasts are the algorithms of a broadcast.
func Broadcasts() []Entry[BroadcastFunc] { return broadcasts[:] }

// AllGathers are the algorithms of an all-gather. All take blocks of different lengths.
func AllGathers() []Entry[AllGatherFunc] { return allGathers[:] }

// Gathers are the algorithms of a gather of blocks of one length.
func Gathers() []Entry[GatherFunc] { return gathers[:] }

// GathersV are those of them that take blocks of different lengths, which only root knows.
func GathersV() []Entry[GatherFunc] { return gathers[:1:1] }

// Scatters are the algorithms of a scatter of blocks of one length.
func Scatters() []Entry[ScatterFunc] { return scatters[:] }

// ScattersV are those of them that take blocks of different lengths, which only root knows.
func ScattersV() []Entry[ScatterFunc] { return scatters[:1:1] }

// AllToAlls are the algorithms of an all-to-all of blocks of one length.
func AllToAlls() []Entry[AllToAllFunc] { return allToAlls[:] }

// AllToAllsV are those of them that take blocks of different lengths, each of which only its sender and its
// receiver know.
func AllToAllsV() []Entry[AllToAllFunc] { return allToAlls[:2:2] }

// Barriers are the algorithms of a barrier.
func Barriers() []Entry[BarrierFunc] { return barriers[:] }
