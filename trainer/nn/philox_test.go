package nn

import "testing"

// The known answers for philox4x32-10 that come with the authors' implementation (Random123, kat_vectors).
func TestPhiloxKnownAnswers(t *testing.T) {
	const ones = 1<<64 - 1
	for _, c := range []struct {
		key     uint64
		counter [2]uint64
		want    [4]uint32
	}{
		{0, [2]uint64{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{ones, [2]uint64{ones, ones}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{0x299f31d0_a4093822, [2]uint64{0x85a308d3_243f6a88, 0x03707344_13198a2e},
			[4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox(c.key, c.counter); got != c.want {
			t.Errorf("philox(%x, %x) = %x, want %x", c.key, c.counter, got, c.want)
		}
	}
}
