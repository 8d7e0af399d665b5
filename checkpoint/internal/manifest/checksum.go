package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"ddpbatch/internal/crc32c"
)

// Checksum is a CRC-32C. In JSON it is eight lower-case hexadecimal digits.
type Checksum uint32

// CRC returns the checksum of data.
func CRC(data []byte) Checksum { return Checksum(crc32c.Checksum(data)) }

func (c Checksum) String() string { return fmt.Sprintf("%08x", uint32(c)) }

// MarshalText returns the eight digits.
func (c Checksum) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText accepts exactly what MarshalText returns.
func (c *Checksum) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text[:min(len(text), 9)]), 16, 32)
	if err != nil || Checksum(v).String() != string(text) {
		return fmt.Errorf("checksum %s is not 8 lower-case hexadecimal digits", quote(string(text)))
	}
	*c = Checksum(v)
	return nil
}

// The last field of a manifest and of a record is its own checksum, in exactly this form in
// every version. It covers every byte before tailStart.
const (
	tailStart = ",\n  \"crc32c\": \""
	tailEnd   = "\"\n}\n"
	tailBytes = len(tailStart) + 8 + len(tailEnd)
)

// seal appends the tail to an object that is still open.
func seal(body []byte) []byte {
	sum := CRC(body)
	return append(body, tailStart+sum.String()+tailEnd...)
}

// CheckSeal returns an error unless data, a manifest or a record, ends in the checksum of the bytes before it: then bytes were lost or
// changed after they were written.
func CheckSeal(data []byte) error {
	if len(data) < tailBytes {
		return fmt.Errorf("it is cut short: %d bytes", len(data))
	}
	body, tail := data[:len(data)-tailBytes], data[len(data)-tailBytes:]
	var want Checksum
	if !bytes.HasPrefix(tail, []byte(tailStart)) || !bytes.HasSuffix(tail, []byte(tailEnd)) ||
		want.UnmarshalText(tail[len(tailStart):len(tailStart)+8]) != nil {
		return errors.New("it does not end in its checksum: it was cut short or changed")
	}
	if got := CRC(body); got != want {
		return fmt.Errorf("its checksum is %v, it says %v", got, want)
	}
	return nil
}
