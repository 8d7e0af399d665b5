package rendezvous

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ddpbatch/mpi/launch/reach"
)

// The text about saved tries is bounded and harmless, whoever wrote their files.
func TestHostileRowsAreBounded(t *testing.T) {
	c := complete(Config{Identity: Identity{RunDir: newRunDir(t), Attempt: 1}, World: World{Count: 5, Host: "n1"}})
	c.Hosts = []string{"n1", "n2", "n3", "n4", "n5"}
	tries := make([]reach.Try, 200)
	for i := range tries {
		tries[i] = reach.Try{Addr: "a\x1b[2J", Count: -1, Took: -1 << 62, Err: strings.Repeat("e\n", 5)}
	}
	many, err := json.Marshal(reach.AgentTries{From: "root@elsewhere", Tries: tries})
	must(t, err)
	for agent, text := range []string{1: "\x00", 2: string(many[:len(many)/2]), 3: string(many)} {
		if agent > 0 {
			must(t, c.RunDir.WriteReach(1, agent, []byte(text)))
		}
	}
	folder := filepath.Join(c.RunDir.Path(), "attempts", "1", "reach")
	must(t, syscall.Mkfifo(filepath.Join(folder, "4.json"), 0o600)) // a process that opens it waits forever
	rows := c.savedTries([]int{1, 2, 3, 4})
	text := (&NotMetError{errors.New("two of five"), rows}).Error()
	if len(rows) != 4 || len(rows[2].Tries) != maxTries || strings.ContainsAny(text, "\x1b\x00") || strings.Contains(text, "elsewhere") ||
		strings.Count(text, "\n") != 1+3+maxTries || strings.Count(text, "nothing is known of it") != 3 {
		t.Errorf("%d rows:\n%s", len(rows), text)
	}
	must(t, os.RemoveAll(folder))
	if rows := c.savedTries(make([]int, 1000)); len(rows) != maxRows {
		t.Errorf("%d rows of a thousand", len(rows))
	}
	c.RunDir = nil
	if rows := c.savedTries([]int{1}); rows != nil {
		t.Errorf("without a run directory: %+v", rows)
	}
}

// A file of agent 0 that does not contain a valid port is an error.
func TestFaultySavedPortLeadsNowhere(t *testing.T) {
	c := Config{Identity: Identity{RunDir: newRunDir(t), Attempt: 1}}
	if port, err := c.savedPort(); !errors.Is(err, errNoSavedPort) {
		t.Errorf("no file: %d, %v", port, err)
	}
	must(t, c.savePort(4711))
	if port, err := c.savedPort(); port != 4711 || err != nil {
		t.Errorf("%d, %v", port, err)
	}
	for text, says := range map[string]string{
		`{"port":0}`: "0 is not a port", `{"port":70000}`: "70000 is not a port", "x": "invalid character", "{}": "0 is not a port",
	} {
		must(t, c.RunDir.WriteReach(c.Attempt, 0, []byte(text)))
		if port, err := c.savedPort(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %d, %v", text, port, err)
		}
	}
}
