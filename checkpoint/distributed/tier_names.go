package distributed

import (
	"crypto/sha256"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"ddpbatch/checkpoint"
	"ddpbatch/checkpoint/internal/manifest"
)

// tierFolder returns the name of a run's folder: the readable part of the run's name, and a hash that is unique.
func tierFolder(location checkpoint.Location) string {
	plain := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			return c
		}
		return '_'
	}, location.Run)
	hash := sha256.Sum256([]byte(location.Run + "\x00" + location.Path))
	return fmt.Sprintf("%s-%x", plain[:min(len(plain), 64)], hash[:8])
}

// probePrefix begins the name of a probe, before its session and rank.
const probePrefix = "probe-"

func (t *tier) probeName(rank int) string {
	return fmt.Sprintf("%s%08x-%d", probePrefix, t.session, rank)
}

// otherProbe reports whether a file is a probe that an earlier attempt could not remove.
func (t *tier) otherProbe(name string) bool {
	return strings.HasPrefix(name, probePrefix) && !strings.HasPrefix(name, fmt.Sprintf("%s%08x-", probePrefix, t.session))
}

// saveName is the folder of one save on a node's own disk.
type saveName struct {
	step    int64
	attempt int
	session uint32 // of the Saver
	id      uint64 // of the save
}

func (n saveName) String() string {
	return fmt.Sprintf("%s.%d-%08x-%d", manifest.StepFolder(n.step), n.attempt, n.session, n.id)
}

var saveNames = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^step-([0-9]{12})\.(0|[1-9][0-9]{0,8})-([0-9a-f]{8})-([1-9][0-9]{0,17})$`)
})

func parseSaveName(name string) (n saveName, ok bool) {
	m := saveNames().FindStringSubmatch(name)
	if m == nil {
		return n, false
	}
	n.step, _ = strconv.ParseInt(m[1], 10, 64) // cannot fail after the pattern matched
	n.attempt, _ = strconv.Atoi(m[2])
	session, _ := strconv.ParseUint(m[3], 16, 32)
	n.session = uint32(session)
	n.id, _ = strconv.ParseUint(m[4], 10, 64)
	return n, true
}

// localNames matches the files in such a folder: shards, their records, and what a writer that died has left of either.
var (
	localNames = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(shard-[0-9]{5}-of-[0-9]{5}\.(json|ddpt)|\.ddpbatch-[0-9a-f]{8}\.tmp)$`)
	})
	recordNames = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^shard-([0-9]{5})-of-([0-9]{5})\.json$`) })
)

func shardName(shard, shards int, ext string) string {
	return fmt.Sprintf("shard-%05d-of-%05d.%s", shard, shards, ext)
}

// parseRecordName returns the number of the shard whose record has that file name.
func parseRecordName(name string) (shard, shards int, ok bool) {
	m := recordNames().FindStringSubmatch(name)
	if m == nil {
		return 0, 0, false
	}
	shard, _ = strconv.Atoi(m[1]) // cannot fail after the pattern matched
	shards, _ = strconv.Atoi(m[2])
	return shard, shards, shard < shards
}
