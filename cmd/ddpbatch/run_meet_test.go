package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestRunMeetsByHand starts agents as people do in several terminals: with numbers, and numbered as they come.
func TestRunMeetsByHand(t *testing.T) {
	t.Setenv("HOME", t.TempDir()) // for the key file
	for _, test := range []struct {
		flags string // of all agents; PORT is one that is free
		each  []string
		want  string // of ranks: RANK/WORLD_SIZE GROUP_RANK
	}{
		{"--nnodes 2 --master-addr 127.0.0.1 --master-port PORT", []string{"--node-rank 0 --nproc-per-node 2", "--node_rank=1"}, "0/3 0, 1/3 0, 2/3 1"},
		{"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:PORT", []string{"", ""}, "0/2 0, 1/2 1"},
		{"--nnodes 2:2 --rdzv-backend c10d --rdzv-endpoint localhost:PORT", []string{"--node-rank 1 --nproc-per-node 2", "--node-rank 0"}, "0/3 0, 1/3 1, 2/3 1"},
		{"--nnodes 2 --rdzv-backend c10d --rdzv-endpoint localhost:PORT --rdzv-id job", []string{"--rdzv-conf is_host=1 --nproc-per-node 2", "--rdzv-conf is_host=0"}, "0/3 0, 1/3 0, 2/3 1"},
		{"--nnodes 1:3 --rdzv-backend c10d --rdzv-endpoint localhost:PORT --rdzv-conf last_call_timeout=0.2", []string{""}, "0/1 0"},
	} {
		flags := strings.ReplaceAll(test.flags, "PORT", fmt.Sprint(handPort(t)))
		ended := make(chan string, len(test.each))
		for _, own := range test.each {
			go func() { ended <- runByHand(flags + " " + own) }()
		}
		var lines []string
		for range test.each {
			out := <-ended
			lines = append(lines, regexp.MustCompile(`(?m)^\d+/\d+ \d+$`).FindAllString(out, -1)...)
			if strings.Contains(out, "exit status") {
				t.Errorf("%s: %s", flags, out)
			}
		}
		slices.Sort(lines)
		if got := strings.Join(lines, ", "); got != test.want {
			t.Errorf("%s: %s, want %s", flags, got, test.want)
		}
	}
}

// runByHand is what an agent with these flags prints, and how it fails.
func runByHand(flags string) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	words := append([]string{"run", "--prefix="}, strings.Fields(flags)...)
	cmd := exec.CommandContext(ctx, "ddpbatch", append(words, "--", "sh", "-c", "echo $RANK/$WORLD_SIZE $GROUP_RANK")...)
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Sprintf("%s\n%v", out, err)
	}
	return string(out)
}
