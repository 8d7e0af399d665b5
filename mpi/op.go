package mpi

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"runtime/debug"
	"unsafe"

	"ddpbatch/mpi/internal/element"
)

// Op says how a reduction combines elements. It is one of the constants, or made by PreMulSum or NewOp.
type Op interface {
	fmt.Stringer
	resolve(t element.Type) (resolved, error)
}

// Standard is an Op without parameters.
type Standard uint8

const (
	// Sum adds. Integers wrap around. For bools it is or.
	Sum = Standard(element.Sum)

	// Min takes the smallest. If one element is NaN, the result is NaN. -0 is less than +0. For bools it is and.
	Min = Standard(element.Min)

	// Max takes the largest, with the same rules. For bools it is or.
	Max = Standard(element.Max)

	// Product multiplies. Integers wrap around. For bools it is and.
	Product = Standard(element.Product)

	BAnd = Standard(element.BAnd) // bitwise, for integers and bools
	BOr  = Standard(element.BOr)
	BXor = Standard(element.BXor)

	// Avg is Sum divided by the number of ranks. Integers are truncated towards zero.
	Avg = Standard(element.Avg)
)

func (op Standard) String() string { return element.Op(op).String() }

// resolved is an Op for one element type.
type resolved struct {
	code     uint8  // for fingerprints
	digest   uint32 // for fingerprints: a digest of the name that a user has given it
	kernel   element.Kernel
	twin     element.Kernel2 // or nil
	commutes bool
	factor   float64 // what each rank's elements are scaled by first, unless it is 1
	average  bool
}

func (op Standard) resolve(t element.Type) (r resolved, err error) {
	err = op.fill(&r, t)
	return r, err
}

func (op Standard) fill(r *resolved, t element.Type) (err error) {
	if op == 0 || op > Avg || element.Op(op) == element.PreMulSum {
		return fmt.Errorf("unknown reduce operation %d", uint8(op))
	}
	r.code, r.commutes, r.factor, r.average = uint8(op), true, 1, op == Avg
	r.twin, _ = element.Kernel2Of(t, element.Op(op))
	r.kernel, err = element.KernelOf(t, element.Op(op))
	return err
}

// PreMulSum returns an Op that multiplies each rank's elements by that rank's factor, and then sums them.
func PreMulSum(factor float64) Op { return preMulSum(factor) }

type preMulSum float64

func (op preMulSum) String() string { return element.PreMulSum.String() }

func (op preMulSum) resolve(t element.Type) (resolved, error) {
	kernel, err := element.KernelOf(t, element.PreMulSum)
	return resolved{code: uint8(element.PreMulSum), kernel: kernel, commutes: true, factor: float64(op)}, err
}

// userCodes is the first of the fingerprint's codes for operations made by NewOp. Their codes, like their digests, are hashes of the names.
const userCodes = 64

// NewOp makes an operation from a function that sets dst[i] to left[i] op right[i] for all i. The three slices have the same length, and
// dst may be left or right. f must be associative, and must be the same on all ranks. name distinguishes operations when ranks make
// different calls. If f panics, the call returns a PanicError. If the operation does not commute, left always comes from lower ranks than
// right, and only canonical algorithms are used.
func NewOp[T Number](name string, commutes bool, f func(dst, left, right []T)) Op {
	return &userOp[T]{name: name, commutes: commutes, f: f}
}

type userOp[T Number] struct {
	name     string
	commutes bool
	f        func(dst, left, right []T)
}

func (op *userOp[T]) String() string { return op.name }

func (op *userOp[T]) resolve(t element.Type) (resolved, error) {
	if want := element.TypeOf[T](); want != t {
		return resolved{}, fmt.Errorf("operation %q is for %v, not %v", op.name, want, t)
	}
	hash := fnv.New32a()
	hash.Write([]byte(op.name))
	digest := hash.Sum32()
	return resolved{
		code: userCodes + uint8(digest%(256-userCodes)), digest: digest, commutes: op.commutes, factor: 1,
		kernel: func(dst, a, b []byte) {
			defer func() {
				if p := recover(); p != nil {
					panic(&PanicError{Value: p, Stack: debug.Stack()})
				}
			}()
			op.f(element.View[T](dst), element.View[T](a), element.View[T](b))
		},
	}, nil
}

// opName returns the name of an operation's code. The code may come off the wire, and need not be valid.
func opName(code uint8) string {
	if code >= userCodes {
		return fmt.Sprintf("user's op %d", code-userCodes)
	}
	return element.Op(code).String()
}

// Number is an element type that collectives work on: floats, integers, bool and complex numbers, [Float16] and
// [BFloat16], and types made from them.
type Number = element.Number

// Float16 is an IEEE 754 binary16 number. Reductions compute in float32 and round each result.
type Float16 = element.F16

// BFloat16 is the upper half of a float32. Reductions compute in float32 and round each result.
type BFloat16 = element.BF16

// ToFloat16 rounds f to the nearest Float16.
func ToFloat16(f float32) Float16 { return element.ToFloat16(f) }

// ToBFloat16 rounds f to the nearest BFloat16.
func ToBFloat16(f float32) BFloat16 { return element.ToBFloat16(f) }

// bytesOf returns the memory of s as it goes over the wire, in little-endian order. Init returns an error on big-endian machines.
// element.View is the inverse.
func bytesOf[T Number](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

// littleEndian reports whether this machine is little-endian.
func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }
