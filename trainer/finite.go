package trainer

import (
	"encoding/binary"
	"fmt"
	"math"
)

// exponent is the bits of a float32 that are all set where it is not finite.
const exponent = 0x7f800000

// checkSaved refuses to save a state that no training can go on from. data are float32s, little-endian; the Saver says of which array.
func (t *trainer) checkSaved(_ string, data []byte) error {
	for ; len(data) >= 4; data = data[4:] {
		if bits := binary.LittleEndian.Uint32(data); bits&exponent == exponent {
			return fmt.Errorf("%w: it holds %v; lower optimizer.lr (now %v) or look at the data",
				ErrDiverged, math.Float32frombits(bits), t.cfg.Optimizer.LR)
		}
	}
	return nil
}
