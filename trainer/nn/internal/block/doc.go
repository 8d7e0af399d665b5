// Package block copies and adds blocks of matrices: short rows at some distance from each other. That is most of what a convolution
// does besides its products, and a call of copy for each row of 14 values takes longer than the copying itself.
//
// It is written in plain Go, and in assembly for amd64. Results have the same bits with and without assembly, except for which NaN a sum
// of two NaNs gives. Race builds and builds with the tag noasm run the plain loops. Go cannot interrupt assembly: a block
// should be no larger than an image, so that the garbage collector need not wait.
package block
