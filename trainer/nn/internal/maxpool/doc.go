// Package maxpool has the loops of max-pooling 2 x 2 values to one, which most image models use: in plain Go,
// and for amd64 in assembly that is 20 times faster, because which of four values is the largest cannot be
// predicted.
//
// A batch of images of even width and height is one long list of rows here, an even number of them. Results have the same bits with
// and without assembly, except for which NaN is the result if there are several. Race builds and builds with
// the tag noasm run the plain loops.
package maxpool
