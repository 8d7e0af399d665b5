package crc32c

// Digest is an io.Writer that adds up the checksum of all that is written to it. The zero value has seen nothing. Use it from one
// goroutine.
type Digest struct{ crc uint32 }

// Write adds p. It never fails.
func (d *Digest) Write(p []byte) (int, error) {
	d.crc = Update(d.crc, p)
	return len(p), nil
}

// Sum32 is the checksum of what has been written.
func (d *Digest) Sum32() uint32 { return d.crc }
