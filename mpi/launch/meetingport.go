package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// listen opens the port that agents meet at. Where it can be told, it is any. Otherwise it is one that all know; where those are taken,
// which anybody on this machine can do, it is any again, and agent 0 tells it in the run directory.
func (c AgentConfig) listen(n network) (net.Listener, error) {
	if c.Count == 1 || c.Exchange != nil {
		return listenFirst(n.hosts(c), anyPort)
	}
	l, err := listenFirst(n.hosts(c), c.Ports)
	if err != nil {
		err = fmt.Errorf("listen for the other agents: %w", err)
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if err = fmt.Errorf("%w (%s)", err, holders(c.Ports)); c.RunDir == nil {
		return nil, fmt.Errorf("%w: end who holds them (ss -tlnp shows the programs), give another --master-port, "+
			"or start with srun --mpi=pmi2, which needs no port that is known beforehand", err)
	}
	l, failed := listenFirst(n.hosts(c), anyPort)
	if failed != nil {
		return nil, errors.Join(err, failed)
	}
	if failed := c.leavePort(portOf(l)); failed != nil {
		return nil, errors.Join(err, failed, l.Close())
	}
	c.Log.Warn("this agent listens at another port, which the run directory tells the others", "port", portOf(l), "error", err)
	return l, nil
}

// leftPort is what agent 0 writes to its own file in reach/, where every other agent writes what it has tried.
type leftPort struct {
	Port int `json:"port"`
}

func (c AgentConfig) leavePort(port int) error {
	text, err := json.Marshal(leftPort{port})
	if err != nil {
		return err
	}
	return c.RunDir.WriteReach(c.Attempt, 0, text)
}

// errNoPortLeft: agent 0 has left no port, as a rule because it listens at one of those that all know.
var errNoPortLeft = errors.New("agent 0 tells of no other port")

// portLeft is the port that agent 0 has left. Whoever may have written it: an agent proves itself there.
func (c AgentConfig) portLeft() (int, error) {
	text, err := c.RunDir.Reach(c.Attempt, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, errNoPortLeft
	}
	var left leftPort
	if err == nil {
		err = json.Unmarshal(text, &left)
	}
	if err == nil && !isPort(left.Port) {
		err = fmt.Errorf("%d is not a port", left.Port)
	}
	if err != nil {
		return 0, fmt.Errorf("read the port of agent 0 in the run directory: %w", err)
	}
	return left.Port, nil
}

// holders tells whose processes on this machine listen on ports, for a message.
func holders(ports []int) string {
	users := make(map[int]string)
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} { // proc(5)
		text, err := os.ReadFile(name)
		if err != nil {
			continue // one line says less
		}
		for line := range strings.Lines(string(text)) {
			fields := strings.Fields(line)
			if len(fields) < 8 || fields[3] != "0A" { // listening
				continue
			}
			_, hex, _ := strings.Cut(fields[1], ":")
			if port, err := strconv.ParseUint(hex, 16, 16); err == nil && slices.Contains(ports, int(port)) {
				users[int(port)] = "of user " + fields[7]
			}
		}
	}
	var said []string
	for _, port := range ports {
		who := users[port]
		if who == "" {
			who = "of nobody who listens: another run has claimed it, or a program has bound it"
		}
		said = append(said, fmt.Sprintf("%d: %s", port, who))
	}
	return strings.Join(said, ", ")
}
