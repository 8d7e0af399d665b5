// Package maxpool holds the loops of max-pooling 2 x 2 values to one, which every second image model does all the time: in plain Go,
// and for amd64 in assembly that is 20 times faster, because which of four values is the largest cannot be
// predicted.
//
// A batch of images of even width and height is one long list of rows here, an even number of them. Results have the same bits with
// and without assembly, apart from which NaN comes out where there are several. Race builds run the plain loops, and so do builds with
// the tag noasm.
package maxpool
