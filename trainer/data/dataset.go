package data

// maxInputs bounds the values of a row: a batch has as many of float32 for each of its rows. A picture of
// 4096 x 4096 has that many.
const maxInputs = 1 << 24

// Dataset is a table of samples: inputs, and for each either classes or outputs. It may be read by several
// goroutines at once.
type Dataset interface {
	// Len is the number of rows.
	Len() int
	// Spec says what a row is made of.
	Spec() Spec
	// Read copies row i: its inputs into x, its outputs into y, its labels into labels, which have
	// Spec().Inputs, Spec().Outputs and Spec().Labels elements. It computes on what is at hand, neither waits nor
	// fails: nothing could end the wait, and there is nobody to give an error to.
	Read(i int, x, y []float32, labels []int)
}

// Spec describes the rows of a data set. Either Outputs or Classes is 0.
type Spec struct {
	Inputs  int   // columns of x
	Outputs int   // columns of y, for regression
	Classes int   // labels are in [0, Classes), for classification
	Labels  int   // of a row: 1 for classification, one for every symbol of a text, 0 for regression
	Image   Image // what x is, if it is an image; else zero
	Symbols int   // of a text: x holds symbol numbers in [0, Symbols); else 0
}

// Image is the shape of a row that is an image: Channels x Height x Width values, channel by
// channel, row by row (PyTorch's CHW).
type Image struct{ Channels, Height, Width int }
