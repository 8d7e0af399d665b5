package algorithm

// The tables of the reductions. They keep the rule of the collectives that move bytes: however the ranks are parted
// in two, some rank on each side hears from the other side before it returns.

// AllReduces are the algorithms of the all-reduce.
func AllReduces() []Entry[AllReduceFunc] {
	return []Entry[AllReduceFunc]{
		{Traits{Code: 1, Name: "star", Canonical: true, Cost: costStar}, allReduceStar},
		{Traits{Code: 2, Name: "ring", Cost: costRing}, allReduceRing},
		{Traits{Code: 3, Name: "segmented_ring", Cost: costSegmentedRing}, allReduceSegmentedRing},
		{Traits{Code: 4, Name: "recursive_doubling", Canonical: true, Cost: costDoubling}, allReduceDoubling},
		{Traits{Code: 5, Name: "halving_doubling", Canonical: true, Fits: powerOfTwo, Cost: costHalving}, allReduceHalving},
		{Traits{Code: 6, Name: "binomial", Canonical: true, Cost: costBinomial}, allReduceBinomial},
		{Traits{Code: 7, Name: "double_tree", Cost: costDoubleTree}, allReduceDoubleTree},
		{Traits{Code: 8, Name: "direct", Canonical: true, Cost: costDirect}, allReduceDirect},
		{Traits{Code: 9, Name: "gather_reduce", Canonical: true, Cost: costGather}, allReduceGather},
		{Traits{Code: 10, Name: "swing", Fits: powerOfTwo, Cost: costHalving}, allReduceSwing},
	}
}

// Reduces are the algorithms of the reduction to one rank.
func Reduces() []Entry[ReduceFunc] {
	return []Entry[ReduceFunc]{
		{Traits{Code: 1, Name: "direct", Canonical: true, Cost: costReduceDirect}, reduceDirect},
		{Traits{Code: 2, Name: "binomial", Canonical: true, Cost: costReduceBinomial}, reduceBinomial},
		{Traits{Code: 3, Name: "scatter_gather", Canonical: true, Cost: costReduceScattered}, reduceScattered},
	}
}

// ReduceScatters are the algorithms of the reduce-scatter. All take blocks of different lengths.
func ReduceScatters() []Entry[ReduceScatterFunc] {
	return []Entry[ReduceScatterFunc]{
		{Traits{Code: 1, Name: "direct", Canonical: true, Cost: costReduceScatterDirect}, reduceScatterDirect},
		{Traits{Code: 2, Name: "ring", Cost: costReduceScatterRing}, reduceScatterRing},
		{Traits{Code: 3, Name: "halving", Canonical: true, Fits: powerOfTwo, Cost: costReduceScatterHalving}, reduceScatterHalving},
	}
}

// Scans are the algorithms of the inclusive scan. A canonical one leaves rank i with what an all-reduce of
// ranks 0 to i alone would.
func Scans() []Entry[ScanFunc] {
	return []Entry[ScanFunc]{
		{Traits{Code: 1, Name: "recursive_doubling", Canonical: true, Cost: costScanDoubling}, scanDoubling},
		{Traits{Code: 2, Name: "linear", Cost: costScanLinear}, scanLinear},
	}
}

// Exscans are the algorithms of the exclusive scan.
func Exscans() []Entry[ScanFunc] {
	return []Entry[ScanFunc]{
		{Traits{Code: 1, Name: "recursive_doubling", Canonical: true, Cost: costExscanDoubling}, exscanDoubling},
		{Traits{Code: 2, Name: "linear", Cost: costExscanLinear}, exscanLinear},
	}
}
