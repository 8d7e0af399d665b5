package manifest

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"
)

const (
	// Name is the commit record of a checkpoint.
	Name = "MANIFEST.json"
	// DeletingName is what a manifest is called once its checkpoint is being removed.
	DeletingName = "MANIFEST.deleting"
	// TmpSuffix ends the name of every file that is being written.
	TmpSuffix = ".tmp"
)

// Tag is unique to one save: the attempt, the CRC-32C of the run's name, and a random number.
// Neither an earlier attempt that is still alive nor a second save of the same step ever meets
// another's file, and what was copied in from another run is known by its name.
type Tag struct {
	Attempt    int // 0 to MaxAttempt
	Run, Nonce uint32
}

func (t Tag) String() string { return fmt.Sprintf("%d-%08x-%08x", t.Attempt, t.Run, t.Nonce) }

// ShardName names shard i of n while 0 <= i < n <= MaxShards; with TmpSuffix, while it is written.
func (t Tag) ShardName(i, n int) string { return fmt.Sprintf("shard-%05d-of-%05d.%s.ddpt", i, n, t) }

// ManifestTmp is the manifest's name until it is committed.
func (t Tag) ManifestTmp() string { return "MANIFEST." + t.String() + ".json" + TmpSuffix }

// RecordTmp is the name of a lineage record until it is whole; it lies beside the checkpoints.
func (t Tag) RecordTmp() string { return "attempt." + t.String() + ".json" + TmpSuffix }

// ProbeName is the name of a file that only tries out whether the folder takes one.
func (t Tag) ProbeName() string { return "PROBE." + t.String() + TmpSuffix }

// decimal is a number of up to nine digits as %d writes it, so that no two texts mean the same.
const (
	decimal = `(0|[1-9][0-9]{0,8})`
	hex32   = `([0-9a-f]{8})`
	tagText = decimal + `-` + hex32 + `-` + hex32
)

// They are compiled when they are first needed: counted repetitions take long, and most processes never ask.
var (
	shardNames = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^shard-([0-9]{5})-of-([0-9]{5})\.` + tagText + `\.ddpt(\.tmp)?$`)
	})
	tmpNames = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:MANIFEST\.` + tagText + `\.json|attempt\.` + tagText + `\.json|PROBE\.` + tagText + `)\.tmp$`)
	})
)

// shardFile is what the name of a shard file says.
type shardFile struct {
	Shard, Shards int
	Tag           Tag
	Tmp           bool // still being written, or left by a writer that died
}

// parseShardName reads what ShardName wrote, with or without TmpSuffix; false for any other name.
func parseShardName(name string) (shardFile, bool) {
	m := shardNames().FindStringSubmatch(name)
	if m == nil {
		return shardFile{}, false
	}
	f := shardFile{Shard: number(m[1]), Shards: number(m[2]), Tag: parseTag(m[3:6]), Tmp: m[6] != ""}
	return f, f.Shard < f.Shards && f.Shards <= MaxShards
}

// isShardName says whether name is that of shard i of n, whole, of whatever run and attempt.
func isShardName(name string, i, n int) bool {
	f, ok := parseShardName(name)
	return ok && f.Shard == i && f.Shards == n && !f.Tmp
}

// ParseTag returns the tag in a name that a method of Tag gives; false for any other name.
func ParseTag(name string) (Tag, bool) {
	if f, ok := parseShardName(name); ok {
		return f.Tag, true
	}
	m := tmpNames().FindStringSubmatch(name)
	if m == nil {
		return Tag{}, false
	}
	for m = m[1:]; m[0] == ""; m = m[3:] {
	}
	return parseTag(m[:3]), true
}

// OwnFile returns the attempt that wrote a shard or a temporary file of a run; false where the
// name is not one with a Tag, or another run's.
func OwnFile(name string, run uint32) (attempt int, ok bool) {
	t, ok := ParseTag(name)
	if !ok || t.Run != run {
		return 0, false
	}
	return t.Attempt, true
}

// parseTag reads the three groups of tagText.
func parseTag(groups []string) Tag {
	return Tag{Attempt: number(groups[0]), Run: hexNumber(groups[1]), Nonce: hexNumber(groups[2])}
}

// number reads digits that a pattern has let through; they cannot overflow.
func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

func hexNumber(digits string) uint32 {
	n, _ := strconv.ParseUint(digits, 16, 32)
	return uint32(n)
}
