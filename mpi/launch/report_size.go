package launch

import (
	"encoding/json"
	"fmt"
)

// maxReport bounds what an agent tells of its workers' ends: a value of the store has no more than store.MaxValue, and agent 0 holds
// the reports of all agents.
const maxReport = 4 << 20

// fewDeaths is how many of many deaths keep their words where all of them are too much.
const fewDeaths = 8

// encode is the report in JSON, in no more than limit bytes: what is too much loses the words of its deaths, of the later ones first, but never
// a death.
func (r report) encode(limit int) ([]byte, error) {
	var text []byte
	var err error
	for _, keep := range []int{len(r.Deaths), fewDeaths, 1, 0} {
		if text, err = json.Marshal(r); err != nil || len(text) <= limit {
			return text, err
		}
		r.Stacks = nil
		r.Deaths = append(r.Deaths[:0:0], r.Deaths...)
		for i := min(keep, len(r.Deaths)); i < len(r.Deaths); i++ {
			r.Deaths[i].Tail, r.Deaths[i].ErrorFile = nil, nil
		}
	}
	if text, err = json.Marshal(r); err == nil && len(text) > limit {
		err = fmt.Errorf("the ends of %d workers take %d bytes, more than %d", len(r.Deaths), len(text), limit)
	}
	return text, err
}
