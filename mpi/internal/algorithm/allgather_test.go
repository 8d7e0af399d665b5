package algorithm

import "testing"

// torch: with n = 1, 2, 3 inputs on each rank, the values n rank + i come out as 0 to n W - 1.
func TestAllGatherAsTorch(t *testing.T) {
	forPeers(t, AllGathers(), func(p Port, run AllGatherFunc) error {
		for n := 1; n <= 3; n++ {
			buf, at := make([]byte, 8*n*p.Size()), ends(repeat(n, p.Size()))
			var want []int
			for i := range n * p.Size() {
				want = append(want, i)
			}
			copy(buf[at[p.Rank()]:at[p.Rank()+1]], encode(want[n*p.Rank():]))
			if err := run(p, buf, at); err != nil {
				return err
			}
			if err := wantValues(buf, want); err != nil {
				return err
			}
		}
		return nil
	})
}
