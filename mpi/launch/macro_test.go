package launch

import (
	"slices"
	"testing"
)

// TestLocalRankMacro: each worker gets its own number; the command's name and the caller's list stay as they are.
func TestLocalRankMacro(t *testing.T) {
	c := AgentConfig{Command: []string{"a${local_rank}", "--local-rank=${local_rank}", "${local_rank}${local_rank}", "-r$local_rank.log", "$local_ranks $LOCAL_RANK", "$${local_rank} $$local_rank $$", "${rank}", "x"}}
	for local, want := range [][]string{
		{"a${local_rank}", "--local-rank=0", "00", "-r0.log", "$local_ranks $LOCAL_RANK", "${local_rank} $local_rank $$", "${rank}", "x"},
		{"a${local_rank}", "--local-rank=1", "11", "-r1.log", "$local_ranks $LOCAL_RANK", "${local_rank} $local_rank $$", "${rank}", "x"},
	} {
		if got := c.commandOf(Place{Rank: 7, LocalRank: local}); !slices.Equal(got, want) {
			t.Errorf("local rank %d: %q, want %q", local, got, want)
		}
	}
}
