package algorithm

// The tables of the reductions. They keep the rule of the collectives that move bytes: however the ranks are parted
// in two, some rank on each side hears from the other side before it returns.

// AllReduces are the algorithms of the all-reduce.
func AllReduces() []Entry[AllReduceFunc] {
	return []Entry[AllReduceFunc]{
		{Code: 1, Name: "star", Canonical: true, Cost: costStar, Run: allReduceStar},
		{Code: 2, Name: "ring", Cost: costRing, Run: allReduceRing},
		{Code: 3, Name: "segmented_ring", Cost: costSegmentedRing, Run: allReduceSegmentedRing},
		{Code: 4, Name: "recursive_doubling", Canonical: true, Cost: costDoubling, Run: allReduceDoubling},
		{Code: 5, Name: "halving_doubling", Canonical: true, Fits: powerOfTwo, Cost: costHalving, Run: allReduceHalving},
		{Code: 6, Name: "binomial", Canonical: true, Cost: costBinomial, Run: allReduceBinomial},
		{Code: 7, Name: "double_tree", Cost: costDoubleTree, Run: allReduceDoubleTree},
		{Code: 8, Name: "direct", Canonical: true, Cost: costDirect, Run: allReduceDirect},
		{Code: 9, Name: "gather_reduce", Canonical: true, Cost: costGather, Run: allReduceGather},
		{Code: 10, Name: "swing", Fits: powerOfTwo, Cost: costHalving, Run: allReduceSwing},
	}
}

// Reduces are the algorithms of the reduction to one rank.
func Reduces() []Entry[ReduceFunc] {
	return []Entry[ReduceFunc]{
		{Code: 1, Name: "direct", Canonical: true, Cost: costReduceDirect, Run: reduceDirect},
		{Code: 2, Name: "binomial", Canonical: true, Cost: costReduceBinomial, Run: reduceBinomial},
		{Code: 3, Name: "scatter_gather", Canonical: true, Cost: costReduceScattered, Run: reduceScattered},
	}
}

// ReduceScatters are the algorithms of the reduce-scatter. All take blocks of different lengths.
func ReduceScatters() []Entry[ReduceScatterFunc] {
	return []Entry[ReduceScatterFunc]{
		{Code: 1, Name: "direct", Canonical: true, Cost: costReduceScatterDirect, Run: reduceScatterDirect},
		{Code: 2, Name: "ring", Cost: costReduceScatterRing, Run: reduceScatterRing},
		{Code: 3, Name: "halving", Canonical: true, Fits: powerOfTwo, Cost: costReduceScatterHalving, Run: reduceScatterHalving},
	}
}

// Scans are the algorithms of the inclusive scan. A canonical one leaves rank i with what an all-reduce of
// ranks 0 to i alone would.
func Scans() []Entry[ScanFunc] {
	return []Entry[ScanFunc]{
		{Code: 1, Name: "recursive_doubling", Canonical: true, Cost: costScanDoubling, Run: scanDoubling},
		{Code: 2, Name: "linear", Cost: costScanLinear, Run: scanLinear},
	}
}

// Exscans are the algorithms of the exclusive scan.
func Exscans() []Entry[ScanFunc] {
	return []Entry[ScanFunc]{
		{Code: 1, Name: "recursive_doubling", Canonical: true, Cost: costExscanDoubling, Run: exscanDoubling},
		{Code: 2, Name: "linear", Cost: costExscanLinear, Run: exscanLinear},
	}
}
