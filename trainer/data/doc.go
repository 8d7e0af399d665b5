// Package data holds the built-in trainer's data sets, the sampler that splits their rows over ranks, and the
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
// A data set is immutable once made, and may be read by several goroutines at once. Rows are read into the caller's
// buffers: an epoch allocates nothing once the largest batch has been seen. A row number out of range is
// a programmer error and panics.
//
// Data sets have room on a node once, however many ranks read them, where their files can be used as they lie: those
// of CIFAR-10, plain IDX, .npy of float32 or uint8, and a file of text are mapped. What must be parsed or unpacked first
// is prepared by one rank and mapped by all, where there is a Cache. Mapped files must stay as they are while they are in
// use: somebody who shortens one kills its readers (SIGBUS).
//
// Files are hostile until checked: their headers are believed only as far as bytes
// follow, sizes are capped, and every error names the file. All rows are checked when a data set is opened, so that
// reading them cannot fail: labels are in range, and numbers finite.
package data
