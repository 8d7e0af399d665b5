package translate

import (
	"strconv"

	"mvdan.cc/sh/v3/syntax"
)

// arithmetic evaluates an expression if its numbers are known.
func (e *expander) arithmetic(x syntax.ArithmExpr) (int64, bool) {
	switch x := x.(type) {
	case *syntax.ParenArithm:
		return e.arithmetic(x.X)
	case *syntax.Word:
		f := e.valueOf(x)
		if name := x.Lit(); syntax.ValidName(name) {
			value, isSet, isKnown := e.lookUp(name)
			if !isSet || !isKnown {
				return 0, false
			}
			f = value
		}
		text, isConstant := f.constant()
		n, err := strconv.ParseInt(text, 10, 32)
		return n, isConstant && err == nil
	case *syntax.BinaryArithm:
		a, okA := e.arithmetic(x.X)
		b, okB := e.arithmetic(x.Y)
		if !okA || !okB {
			return 0, false
		}
		return compute(x.Op, a, b)
	}
	return 0, false
}

// compute accepts numbers that are small enough for one product to fit. ok is false for a larger result.
func compute(op syntax.BinAritOperator, a, b int64) (n int64, ok bool) {
	switch {
	case op == syntax.Add:
		n = a + b
	case op == syntax.Sub:
		n = a - b
	case op == syntax.Mul:
		n = a * b
	case op == syntax.Quo && b != 0:
		n = a / b
	case op == syntax.Rem && b != 0:
		n = a % b
	default:
		return 0, false
	}
	return n, n == int64(int32(n))
}
