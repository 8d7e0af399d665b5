package distributed

import (
	"cmp"
	"fmt"
	"slices"
)

// grain is what the cuts of an array are multiples of: whole pages of memory, and of every element type whole elements.
const grain = 4 << 10

// fill shares out every array over its holders so that the ranks write as equal numbers of bytes as they can: water-filling. What
// only one rank has is that rank's first; then come sets of holders, the smaller first, since the larger ones
// have more ranks to even things out with. Under plain data parallelism every rank writes total/world, give or take a page.
func fill(p plan, all []held, world int) {
	load := make([]int64, world)
	groups := map[string][]int{} // holders -> arrays
	var order []string
	for i, a := range all {
		key := fmt.Sprint(a.holders)
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], i)
	}
	slices.SortStableFunc(order, func(a, b string) int {
		return cmp.Compare(len(all[groups[a][0]].holders), len(all[groups[b][0]].holders))
	})
	for _, key := range order {
		fillGroup(p, all, groups[key], load)
	}
}

// fillGroup shares out the arrays of one set of holders. Laid end to end they are cut where a holder has its fill; a cut moves to the
// nearest grain of its array, so errors do not add up.
func fillGroup(p plan, all []held, arrays []int, load []int64) {
	holders := all[arrays[0]].holders
	var total int64
	for _, i := range arrays {
		total += all[i].Bytes
	}
	share := shares(total, holders, load)
	h, end := 0, share[0] // the holder at work, and where its fill ends, from the start of the group
	var start int64       // of the array
	for _, i := range arrays {
		for at := int64(0); at < all[i].Bytes; {
			stop := nearest(end-start, all[i].Bytes)
			if h == len(holders)-1 {
				stop = all[i].Bytes
			}
			if stop > at {
				p[i].Cuts = append(p[i].Cuts, cut{Rank: holders[h], Start: at, Length: stop - at})
				load[holders[h]] += stop - at
				at = stop
			}
			if at < all[i].Bytes {
				h++
				end += share[h]
			}
		}
		start += all[i].Bytes
	}
}

// shares says how much of total each holder gets so that the fullest is as empty as can be.
func shares(total int64, holders []int, load []int64) []int64 {
	byLoad := slices.Clone(holders)
	slices.SortStableFunc(byLoad, func(a, b int) int { return cmp.Compare(load[a], load[b]) })
	// The n emptiest are filled up to one level, which is below the load of the next one.
	var below int64
	n := 0
	for n < len(byLoad) && (n == 0 || load[byLoad[n]] <= (total+below)/int64(n)) {
		below += load[byLoad[n]]
		n++
	}
	level, rest := (total+below)/int64(n), (total+below)%int64(n)
	share := make([]int64, len(holders))
	for i, rank := range holders {
		if at := slices.Index(byLoad, rank); at < n {
			share[i] = level - load[rank]
			if int64(at) < rest {
				share[i]++
			}
		}
	}
	return share
}

// nearest is the cut next to at: a multiple of grain, or the end of an array of that size.
func nearest(at, size int64) int64 {
	if at >= size {
		return size
	}
	down := max(at, 0) / grain * grain
	up := min(down+grain, size)
	if at-down <= up-at {
		return down
	}
	return up
}
