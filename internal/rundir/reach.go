package rundir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// maxReach is far more than an agent writes.
const maxReach = 64 << 10

// WriteReach replaces attempts/<n>/reach/<agent>.json: what an agent leaves for the others. Agent 0 leaves the port that it listens at. Any
// other agent leaves what it has tried so far to reach agent 0, which reports that if the agent never comes.
func (d *Dir) WriteReach(attempt, agent int, data []byte) error {
	path := d.reachPath(attempt, agent)
	err := os.Mkdir(filepath.Dir(path), 0o700)
	if err == nil || errors.Is(err, os.ErrExist) {
		err = writeBytes(path, 0o600, data)
	}
	if err != nil {
		return fmt.Errorf("write what agent %d leaves for the others: %w", agent, err)
	}
	return nil
}

// Reach reads what an agent wrote. An error that is fs.ErrNotExist means that it wrote nothing (yet).
func (d *Dir) Reach(attempt, agent int) ([]byte, error) {
	data, err := readFile(d.reachPath(attempt, agent), maxReach)
	if err != nil {
		return nil, fmt.Errorf("read what agent %d has left: %w", agent, err)
	}
	return data, nil
}

// RemoveReach removes what an agent wrote, which has got through.
func (d *Dir) RemoveReach(attempt, agent int) error {
	return ignoreGone(os.Remove(d.reachPath(attempt, agent)))
}

func (d *Dir) reachPath(attempt, agent int) string {
	return filepath.Join(d.attemptPath(attempt), "reach", fmt.Sprintf("%d.json", agent))
}
