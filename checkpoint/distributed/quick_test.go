package distributed

import (
	"context"
	"fmt"
	"testing"

	"ddpbatch/checkpoint"
)

// TestQuick: a quick save is stored as it is whatever the codec, also in the place of a delta, which the next save then is again.
func TestQuick(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"sync": {}, "async": {Async: true}, "delta": {Async: true, Delta: 3}, "local": {Async: true, Local: localPath}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, fs := newDisk(t)
			mustAll(t, trial{world: 3, attempt: 1, codec: "zstd", o: o, fs: fs}.run(t.Context(), func(ctx context.Context, r *one) error {
				for step := int64(1); step <= 3; step++ {
					for _, a := range r.arrays { // zeros, which any codec makes small
						clear(a.Data)
					}
					m := Meta{Step: step, Quick: step == 2 && (r.rank == 0 || o.Local != "")}
					if err := r.Save(ctx, m); err != nil {
						return err
					}
					info, err := r.Wait(ctx)
					if err != nil {
						return err
					}
					wantBase := int64(-1)
					if o.Delta > 0 && step == 3 {
						wantBase = 1
					}
					if small := info.Bytes < info.RawBytes/2; small == (step == 2) || info.BaseStep != wantBase {
						return fmt.Errorf("step %d takes %d bytes of %d, its base is %d", step, info.Bytes, info.RawBytes, info.BaseStep)
					}
				}
				return nil
			}))
			d, err := checkpoint.Open(sharedPath, checkpoint.Options{FS: disk, Run: "trial"})
			must(t, err)
			for step := int64(1); step <= 3; step++ {
				must(t, d.Verify(t.Context(), step, true))
			}
		})
	}
}
