package main

import (
	"context"
	"fmt"
	"io"
)

// measure launches all sides in turn, as often as asked; each turn begins with another side.
func measure(ctx context.Context, o options, s setting, sides []side, progress io.Writer) (table, error) {
	sides = takingPart(sides, s)
	t := newTable(o, s, sides)
	for turn := range o.launches {
		fmt.Fprintf(progress, "%v: launch %d of %d\n", s, turn+1, o.launches)
		for i := range sides {
			side := sides[(turn+i)%len(sides)]
			out, err := launch(ctx, o, s, side)
			if err != nil {
				return t, err
			}
			t.add(turn, side.name, out)
		}
	}
	t.compare(sides)
	return t, nil
}
