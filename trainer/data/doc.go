// Package data contains the built-in trainer's data sets, the sampler that splits their rows over ranks, and the
// loader that reads batches ahead.
//
//	set, err := data.LoadMNIST(ctx, nil, "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
//	...
//	part, err := data.Subset(set, data.Range{First: 0, End: 9000})
//	...
//	sampler, err := data.NewDistributedSampler(data.SamplerConfig{Rows: part.Len(), World: 4, Rank: 1, Shuffle: true})
//	...
//	loader := data.NewLoader(part, 2)
//	defer loader.Close()
//	for epoch := range 3 {
//		sampler.SetEpoch(epoch, 0)
//		loader.Begin(sampler.Indices(), 64)
//		for batch := loader.Next(); batch != nil; batch = loader.Next() {
//			// batch.X, batch.Labels
//		}
//	}
//
// A data set is immutable, and is safe for concurrent reading. Rows are read into the caller's
// buffers: an epoch does not allocate once the largest batch has been seen. A row number out of range is
// a programming error and panics.
//
// However many ranks of a node read a data set, it is in memory once, if its files can be used without conversion: those
// of CIFAR-10, plain IDX, .npy of float32 or uint8, and a file of text are mapped. Data that must be parsed or unpacked first
// is prepared by one rank and mapped by all, if there is a Cache. Mapped files must not change while they are in
// use: shortening one kills its readers (SIGBUS).
//
// Files are not trusted: a header is believed only as far as bytes
// follow, sizes are limited, and every error names the file. All rows are checked when a data set is opened, so that
// reading them cannot fail: labels are in range, and numbers finite.
package data
