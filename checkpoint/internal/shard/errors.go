package shard

import "fmt"

// Damage says what is wrong with the bytes of a shard. Who knows the file's name adds it.
type Damage struct {
	Piece  int    // index of the piece it is in; -1: it is in none
	Name   string // of that piece
	Detail string // "chunk 3 of 40: its checksum is ..."
}

func (d *Damage) Error() string {
	if d.Piece < 0 {
		return d.Detail
	}
	return fmt.Sprintf("tensor %q: %s", d.Name, d.Detail)
}

// damaged is a Damage that is in no piece.
func damaged(format string, args ...any) *Damage {
	return &Damage{Piece: -1, Detail: fmt.Sprintf(format, args...)}
}

// Newer says that a shard, whole as far as that can be told, is of a version that this program does not know.
type Newer struct{ Version uint32 }

func (n *Newer) Error() string {
	return fmt.Sprintf("the shard is of version %d, this program reads 1 to %d: use a newer program", n.Version, Version)
}
