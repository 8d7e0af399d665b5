package element

import "fmt"

// Op is how a reduction combines two elements. The codes are part of the wire's format.
//
// Integers wrap around. Min and Max give NaN if either is one, and take -0 for less than 0; complex numbers have neither.
// Bitwise operations are for integers and bools. For bools Sum and Max are "or", Product and Min "and".
type Op uint8

const (
	Sum Op = iota + 1
	Min
	Max
	Product
	BAnd
	BOr
	BXor
	PreMulSum // every rank's elements are scaled by a factor of its own first, then summed
	Avg       // the sum, divided by the number of ranks at the end
	User      // a function of the caller's own
)

var opNames = [...]string{
	Sum: "sum", Min: "min", Max: "max", Product: "product",
	BAnd: "band", BOr: "bor", BXor: "bxor", PreMulSum: "premul_sum", Avg: "avg", User: "user",
}

// Valid tells whether op is one of the operations above.
func (op Op) Valid() bool { return op > 0 && int(op) < len(opNames) }

func (op Op) String() string {
	if !op.Valid() {
		return fmt.Sprintf("op %d", uint8(op))
	}
	return opNames[op]
}
