package mpi

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"runtime/debug"
	"unsafe"

	"ddpbatch/mpi/internal/element"
)

// Op is how a reduction combines elements: one of the constants, or what PreMulSum or NewOp makes.
type Op interface {
	fmt.Stringer
	resolve(t element.Type) (resolved, error)
}

// Standard is an Op that needs no more than its name.
type Standard uint8

const (
	// Sum adds. Integers wrap around; of bools it is or.
	Sum = Standard(element.Sum)

	// Min takes the smallest. One NaN makes the result NaN, and -0 is below +0; of bools it is and.
	Min = Standard(element.Min)

	// Max takes the largest, with the same rules; of bools it is or.
	Max = Standard(element.Max)

	// Product multiplies. Integers wrap around; of bools it is and.
	Product = Standard(element.Product)

	BAnd = Standard(element.BAnd) // bit by bit, of integers and bools
	BOr  = Standard(element.BOr)
	BXor = Standard(element.BXor)

	// Avg is Sum, divided by the number of ranks. Integers are truncated towards zero.
	Avg = Standard(element.Avg)
)

func (op Standard) String() string { return element.Op(op).String() }

// resolved is an Op for one element type.
type resolved struct {
	code     uint8  // in fingerprints
	digest   uint32 // in fingerprints: of a user's name for it
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
		return fmt.Errorf("there is no reduce operation %d", uint8(op))
	}
	r.code, r.commutes, r.factor, r.average = uint8(op), true, 1, op == Avg
	r.twin, _ = element.Kernel2Of(t, element.Op(op))
	r.kernel, err = element.KernelOf(t, element.Op(op))
	return err
}

// PreMulSum is Sum of the ranks' elements, each scaled by its rank's factor first.
func PreMulSum(factor float64) Op { return preMulSum(factor) }

type preMulSum float64

func (op preMulSum) String() string { return element.PreMulSum.String() }

func (op preMulSum) resolve(t element.Type) (resolved, error) {
	kernel, err := element.KernelOf(t, element.PreMulSum)
	return resolved{code: uint8(element.PreMulSum), kernel: kernel, commutes: true, factor: float64(op)}, err
}

// userCodes is where the fingerprint's codes of users' operations begin. They are hashes of the names, as is what goes with the count.
const userCodes = 64

// NewOp makes an operation of a function, which sets dst[i] to left[i] op right[i] for all i. The three have the
// same length, and dst may be left or right. It must be associative, and stay the same on all ranks; name
// tells it from others when ranks disagree. A panic of f is a PanicError of the call. If it does not commute, left is always what comes
// from the lower ranks, and only canonical algorithms are used.
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

// opName is the name of an operation's code, as it may come off the wire.
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

// ToFloat16 rounds to the nearest.
func ToFloat16(f float32) Float16 { return element.ToFloat16(f) }

// ToBFloat16 rounds to the nearest.
func ToBFloat16(f float32) BFloat16 { return element.ToBFloat16(f) }

// bytesOf is the memory of s, as it goes over the wire: little-endian. Init
// refuses machines of the other kind. element.View is the reverse.
func bytesOf[T Number](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}

// littleEndian tells whether this machine is.
func littleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }
