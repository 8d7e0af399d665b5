package mpi

import (
	"context"
	"path"
	"strconv"
	"strings"

	"ddpbatch/mpi/store"
)

// machines is a store that has a rank of this machine believe that only width of the ranks are here, and the
// others on further machines, as many on each.
type machines struct {
	store.Store
	rank, width int
}

// widthOf makes two machines of the ranks, or several, of which the last has fewer ranks where that cannot be helped.
func widthOf(size int) int {
	switch {
	case size%2 == 0:
		return size / 2
	case size%3 == 0:
		return 3
	}
	return 2
}

func (m machines) Get(ctx context.Context, key string) ([]byte, error) {
	value, err := m.Store.Get(ctx, key)
	if !strings.Contains(key, "transport/") || err != nil {
		return value, err
	}
	rank, err := strconv.Atoi(path.Base(key))
	if rank/m.width == m.rank/m.width {
		return value, err
	}
	addr, _, _ := strings.Cut(string(value), " ")
	return []byte(addr + " another machine"), err
}
