// Package block copies and adds blocks of matrices: short rows which lie some distance apart. That is most of what a convolution
// does around its products, and a call of copy for each row of 14 values takes longer than the copying.
//
// It is written in plain Go, and for amd64 in assembly. Results have the same bits with and without, apart from which NaN comes out
// of a sum of two. Race builds run the plain loops, and so do builds with the tag noasm. Go cannot interrupt assembly: a block
// should be no larger than an image, so that the garbage collector need not wait.
package block
