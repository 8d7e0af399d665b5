// Package data holds the built-in trainer's data sets, and the sampler that splits their
// rows over ranks.
//
//	set, err := data.LoadMNIST("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
//	...
//	part, err := data.Subset(set, data.Range{First: 0, End: 9000})
//	...
//	sampler, err := data.NewDistributedSampler(data.SamplerConfig{Rows: part.Len(), World: 4, Rank: 1, Shuffle: true})
//	...
//	for epoch := range 3 {
//		sampler.SetEpoch(epoch)
//		for rows := range slices.Chunk(sampler.Indices(), 64) {
//			batch.Fill(part, rows) // batch.X, batch.Labels
//		}
//	}
//
// A data set is immutable once made, lies in memory, and may be read by several goroutines at
// once. Rows are read into the caller's buffers: an epoch allocates nothing once the largest batch
// has been seen. A row number out of range is a programmer error and panics.
//
// Files are hostile until checked: their headers are believed only as far as bytes
// follow, sizes are capped, and every error names the file.
package data
