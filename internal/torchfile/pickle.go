package torchfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
)

// What a pickle produces, beside nil, bool, float64, string, *big.Int and []byte.
type (
	mapping  struct{ keys, values []any }     // a dict
	sequence struct{ items []any }            // a list, a tuple or a set
	global   string                           // module.name of a class or function
	object   struct{ class, args, state any } // a call of class with args, and the state given to the result
	persist  struct{ id any }                 // a storage
	mark     struct{}
)

// machine executes a pickle (Lib/pickletools.py lists the opcodes). Its memory is limited to a small multiple of the pickle's size.
type machine struct {
	in    []byte
	stack []any
	memo  map[uint64]any
}

var errShort = errors.New("the pickle is incomplete")

// unpickle returns the value that a pickle produces.
func unpickle(data []byte) (any, error) {
	m := machine{in: data, memo: map[uint64]any{}}
	for {
		op, err := m.take(1)
		if err != nil {
			return nil, err
		}
		if op[0] == '.' {
			return m.pop()
		}
		if err := m.step(op[0]); err != nil {
			return nil, err
		}
	}
}

// sized maps opcodes that are followed by a text or bytes to the number of bytes, little endian, of its length.
var sized = map[byte]int{
	'X': 4, 0x8c: 1, 0x8d: 8, // unicode
	'U': 1, 'T': 4, // a string of Python 2
	'C': 1, 'B': 4, 0x8e: 8, 0x96: 8, // bytes
	0x8a: 1, 0x8b: 4, // an integer
}

// step executes one opcode.
func (m *machine) step(op byte) error {
	if n, ok := sized[op]; ok {
		return m.text(op, n)
	}
	switch op {
	case 0x80: // protocol
		_, err := m.take(1)
		return err
	case 0x95: // frame
		_, err := m.take(8)
		return err
	case 'N':
		m.push(nil)
	case 0x88, 0x89:
		m.push(op == 0x88)
	case 'K', 'M', 'J':
		return m.integer(map[byte]int{'K': 1, 'M': 2, 'J': 4}[op])
	case 'G':
		b, err := m.take(8)
		if err == nil {
			m.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
		}
		return err
	case '}':
		m.push(&mapping{})
	case ']', ')', 0x8f:
		m.push(&sequence{})
	case '(':
		m.push(mark{})
	case 'q', 'r', 0x94:
		return m.remember(op)
	case 'h', 'j':
		return m.recall(op)
	case 'c', 0x93:
		return m.global(op)
	case '0':
		_, err := m.pop()
		return err
	case '1':
		_, err := m.marked()
		return err
	case '2':
		top, err := m.pop()
		m.push(top)
		m.push(top)
		return err
	default:
		return m.combine(op)
	}
	return nil
}

// combine executes the opcodes that combine values on the stack.
func (m *machine) combine(op byte) error {
	switch op {
	case 't', 0x91: // a tuple, a frozen set
		items, err := m.marked()
		m.push(&sequence{items})
		return err
	case 0x85, 0x86, 0x87:
		items, err := m.several(int(op) - 0x84)
		m.push(&sequence{items})
		return err
	case 'a', 'e', 0x90:
		return m.appendItems(op)
	case 's', 'u':
		return m.setItems(op)
	case 'Q':
		id, err := m.pop()
		m.push(persist{id})
		return err
	case 'R', 0x81:
		parts, err := m.several(2)
		if err == nil {
			m.push(&object{class: parts[0], args: parts[1]})
		}
		return err
	case 0x92:
		parts, err := m.several(3)
		if err == nil {
			m.push(&object{class: parts[0], args: &sequence{parts[1:]}})
		}
		return err
	case 'b':
		return m.build()
	}
	return fmt.Errorf("the pickle has the unsupported opcode %#x", op)
}

func (m *machine) push(v any) { m.stack = append(m.stack, v) }

func (m *machine) pop() (any, error) {
	if len(m.stack) == 0 {
		return nil, errors.New("the pickle pops from an empty stack")
	}
	top := m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
	return top, nil
}

// several pops n values.
func (m *machine) several(n int) ([]any, error) {
	if len(m.stack) < n {
		return nil, errors.New("the pickle pops more values than its stack has")
	}
	at := len(m.stack) - n
	items := slices.Clone(m.stack[at:])
	m.stack = m.stack[:at]
	return items, nil
}

// marked pops everything down to the newest mark.
func (m *machine) marked() ([]any, error) {
	for i := len(m.stack) - 1; i >= 0; i-- {
		if m.stack[i] == any(mark{}) {
			items := slices.Clone(m.stack[i+1:])
			m.stack = m.stack[:i]
			return items, nil
		}
	}
	return nil, errors.New("the pickle's stack lacks a mark")
}

// take reads n bytes of the pickle.
func (m *machine) take(n uint64) ([]byte, error) {
	if n > uint64(len(m.in)) {
		return nil, errShort
	}
	b := m.in[:n]
	m.in = m.in[n:]
	return b, nil
}

// number reads a number of n bytes, little endian.
func (m *machine) number(n int) (v uint64, err error) {
	b, err := m.take(uint64(n))
	for i, digit := range b {
		v |= uint64(digit) << (8 * i)
	}
	return v, err
}

func (m *machine) text(op byte, n int) error {
	length, err := m.number(n)
	if err != nil {
		return err
	}
	b, err := m.take(length)
	switch {
	case err != nil:
		return err
	case op == 0x8a || op == 0x8b:
		m.push(signed(b))
	case op == 'C' || op == 'B' || op == 0x8e || op == 0x96:
		m.push(b)
	default:
		m.push(string(b))
	}
	return nil
}

func (m *machine) integer(n int) error {
	v, err := m.number(n)
	if n == 4 {
		m.push(big.NewInt(int64(int32(v))))
	} else {
		m.push(new(big.Int).SetUint64(v))
	}
	return err
}

// signed decodes a number in two's complement, little endian.
func signed(b []byte) *big.Int {
	reversed := slices.Clone(b)
	slices.Reverse(reversed)
	v := new(big.Int).SetBytes(reversed)
	if len(reversed) > 0 && reversed[0]&0x80 != 0 {
		v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
	}
	return v
}

func (m *machine) remember(op byte) error {
	if len(m.stack) == 0 {
		return errors.New("the pickle stores a value from an empty stack")
	}
	at := uint64(len(m.memo))
	if op != 0x94 {
		var err error
		if at, err = m.number(map[byte]int{'q': 1, 'r': 4}[op]); err != nil {
			return err
		}
	}
	m.memo[at] = m.stack[len(m.stack)-1]
	return nil
}

func (m *machine) recall(op byte) error {
	at, err := m.number(map[byte]int{'h': 1, 'j': 4}[op])
	if err != nil {
		return err
	}
	v, found := m.memo[at]
	if !found {
		return errors.New("the pickle loads a value that it has not stored")
	}
	m.push(v)
	return nil
}

func (m *machine) global(op byte) error {
	if op == 0x93 {
		parts, err := m.several(2)
		if err != nil {
			return err
		}
		module, isText := parts[0].(string)
		name, both := parts[1].(string)
		if !isText || !both {
			return errors.New("the pickle names a class by a value that is not text")
		}
		m.push(global(module + "." + name))
		return nil
	}
	module, rest, found := strings.Cut(string(m.in[:min(len(m.in), 1<<12)]), "\n")
	name, _, ended := strings.Cut(rest, "\n")
	if !found || !ended {
		return errShort
	}
	m.in = m.in[len(module)+len(name)+2:]
	m.push(global(module + "." + name))
	return nil
}

// target returns the value on the stack that the items above it are added to.
func (m *machine) target(op byte, one int) (items []any, top any, err error) {
	if op == 'a' || op == 's' {
		items, err = m.several(one)
	} else {
		items, err = m.marked()
	}
	if err == nil && len(m.stack) == 0 {
		err = errors.New("the pickle adds items to a missing value")
	}
	if err != nil {
		return nil, nil, err
	}
	return items, m.stack[len(m.stack)-1], nil
}

func (m *machine) appendItems(op byte) error {
	items, top, err := m.target(op, 1)
	switch to := top.(type) {
	case *sequence:
		to.items = append(to.items, items...)
	case *object: // of a class that is a list
		to.state = &sequence{[]any{to.state, &sequence{items}}}
	default:
		if err == nil {
			err = errors.New("the pickle appends to a value that is not a list")
		}
	}
	return err
}

func (m *machine) setItems(op byte) error {
	items, top, err := m.target(op, 2)
	if err != nil {
		return err
	}
	if len(items)%2 != 0 {
		return errors.New("the pickle has a key without a value")
	}
	to, ok := top.(*mapping)
	if o, isObject := top.(*object); isObject { // of a class that is a dict, such as OrderedDict
		if to, ok = o.state.(*mapping); !ok {
			to, ok = &mapping{}, o.state == nil
			o.state = to
		}
	}
	if !ok {
		return errors.New("the pickle sets keys of a value that is not a dict")
	}
	for i := 0; i < len(items); i += 2 {
		to.keys, to.values = append(to.keys, items[i]), append(to.values, items[i+1])
	}
	return nil
}

// build gives an object its state. The state of a dict with its own attributes (a model's state has _metadata) is stored beside its items.
func (m *machine) build() error {
	state, err := m.pop()
	if err != nil {
		return err
	}
	if len(m.stack) == 0 {
		return errors.New("the pickle builds an object from an empty stack")
	}
	o, ok := m.stack[len(m.stack)-1].(*object)
	switch {
	case !ok:
		return errors.New("the pickle gives a state to a value that is not an object")
	case o.state == nil:
		o.state = state
	case o.class == global(orderedDict): // its attributes describe its items
	default:
		o.state = &sequence{[]any{o.state, state}}
	}
	return nil
}

const orderedDict = "collections.OrderedDict"
