package element

// A bool on the wire is true if its byte is not 0; Go's own are 0 or 1, and what comes out of these is. Sum and Max
// are "or", Product and Min "and", as in PyTorch's NCCL back end (getNcclReduceOp in ProcessGroupNCCL.cpp),
// which has no average of them either.

func or(dst, a, b []byte) {
	d, x, y := operands[uint8](dst, a, b)
	for i := range d {
		d[i] = truth(x[i]) | truth(y[i])
	}
}

func and(dst, a, b []byte) {
	d, x, y := operands[uint8](dst, a, b)
	for i := range d {
		d[i] = truth(x[i]) & truth(y[i])
	}
}

func xor(dst, a, b []byte) {
	d, x, y := operands[uint8](dst, a, b)
	for i := range d {
		d[i] = truth(x[i]) ^ truth(y[i])
	}
}

func truth(b uint8) uint8 {
	if b != 0 {
		return 1
	}
	return 0
}
