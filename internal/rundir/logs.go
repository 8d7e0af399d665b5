package rundir

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// LogsPath returns the directory of an attempt's logs.
func (d *Dir) LogsPath(attempt int) string { return filepath.Join(d.attemptPath(attempt), logsName) }

// LogPath returns the file with the output of one rank in an attempt. stream is "out" or "err". Host names come from Slurm's configuration
// and from users, so characters that could leave the directory or hide the file are replaced by _.
func (d *Dir) LogPath(attempt int, host string, rank int, stream string) string {
	name := fmt.Sprintf("%s.%d.%s", fileName(host), rank, fileName(stream))
	return filepath.Join(d.LogsPath(attempt), name)
}

// CheckLogPath returns the file with the output of launch.check on a node in an attempt.
func (d *Dir) CheckLogPath(attempt int, host string) string {
	return filepath.Join(d.LogsPath(attempt), fileName(host)+".check.log")
}

func fileName(s string) string {
	const longest = 128 // of the 255 bytes that a name may have (NAME_MAX)
	if len(s) > longest {
		s = s[:longest]
	}
	safe := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '_'
	}, s)
	safe = strings.ReplaceAll(safe, "..", "__")
	if rest, dot := strings.CutSuffix(safe, "."); dot { // the dot after it would make two
		safe = rest + "_"
	}
	if safe == "" || safe[0] == '.' {
		safe = "_" + safe
	}
	return safe
}

// RankLog is the log file of one stream of one rank in an attempt.
type RankLog struct {
	Host   string // as in the file's name
	Rank   int
	Stream string // "out" or "err"
	Path   string
}

// rankStreams are the streams of RankLog, in the order in which they are listed.
var rankStreams = []string{"out", "err"}

// RankLogs lists the logs of an attempt's ranks, sorted by rank, with out before err. It ignores files of other names. A rank that was
// never started has no logs.
func (d *Dir) RankLogs(attempt int) ([]RankLog, error) {
	entries, err := os.ReadDir(d.LogsPath(attempt))
	if err != nil {
		return nil, fmt.Errorf("look for the logs of attempt %d: %w", attempt, err)
	}
	var logs []RankLog
	for _, e := range entries {
		if log, ok := rankLog(e.Name()); ok {
			log.Path = filepath.Join(d.LogsPath(attempt), e.Name())
			logs = append(logs, log)
		}
	}
	slices.SortFunc(logs, func(a, b RankLog) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Host, b.Host),
			cmp.Compare(slices.Index(rankStreams, a.Stream), slices.Index(rankStreams, b.Stream)))
	})
	return logs, nil
}

// rankLog parses a name made by LogPath: <host>.<rank>.<stream>. The host may contain dots.
func rankLog(name string) (RankLog, bool) {
	rest, stream, ok := cutLast(name)
	if !ok || !slices.Contains(rankStreams, stream) {
		return RankLog{}, false
	}
	host, number, ok := cutLast(rest)
	rank, err := strconv.Atoi(number)
	if !ok || host == "" || fileName(host) != host || err != nil || rank < 0 || strconv.Itoa(rank) != number {
		return RankLog{}, false
	}
	return RankLog{Host: host, Rank: rank, Stream: stream}, true
}

func cutLast(name string) (before, after string, ok bool) {
	dot := strings.LastIndexByte(name, '.')
	if dot < 0 {
		return "", "", false
	}
	return name[:dot], name[dot+1:], true
}
