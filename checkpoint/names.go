package checkpoint

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

const (
	manifestName = "MANIFEST.json"
	// deletingName is what a manifest is called once its checkpoint is being removed.
	deletingName = "MANIFEST.deleting"
	tmpSuffix    = ".tmp"
)

// tag is unique to one save: the attempt, the CRC-32C of the run's name, and a random number.
// Neither an earlier attempt that is still alive nor a second save of the same step ever meets
// another's file, and what was copied in from another run is known by its name.
type tag struct {
	attempt    int
	run, nonce uint32
}

func (t tag) String() string { return fmt.Sprintf("%d-%08x-%08x", t.attempt, t.run, t.nonce) }

// shardName names shard i of n.
func (t tag) shardName(i, n int) string { return fmt.Sprintf("shard-%05d-of-%05d.%s.ddpt", i, n, t) }

// manifestTmp is the manifest's name until it is committed.
func (t tag) manifestTmp() string { return "MANIFEST." + t.String() + ".json" + tmpSuffix }

const tagPattern = `([0-9]{1,9})-([0-9a-f]{8})-[0-9a-f]{8}`

var (
	stepNames     = regexp.MustCompile(`^step-([0-9]{12})$`)
	shardNames    = regexp.MustCompile(`^shard-([0-9]{5})-of-([0-9]{5})\.` + tagPattern + `\.ddpt(?:\.tmp)?$`)
	manifestNames = regexp.MustCompile(`^(MANIFEST)(\.)` + tagPattern + `\.json\.tmp$`)
)

func stepName(step int64) string { return fmt.Sprintf("step-%012d", step) }

func parseStepName(name string) (step int64, ok bool) {
	m := stepNames.FindStringSubmatch(name)
	if m == nil {
		return 0, false
	}
	step, err := strconv.ParseInt(m[1], 10, 64)
	return step, err == nil
}

// isShardName says whether name is that of shard i of n, of whatever run and attempt.
func isShardName(name string, i, n int) bool {
	m := shardNames.FindStringSubmatch(name)
	return m != nil && m[1] == fmt.Sprintf("%05d", i) && m[2] == fmt.Sprintf("%05d", n) && !strings.HasSuffix(name, tmpSuffix)
}

// ownAttempt returns the attempt that wrote a shard or a temporary file of a run; false where
// the name is not one that this package gives, or another run's.
func ownAttempt(name string, run uint32) (attempt int, ok bool) {
	m := shardNames.FindStringSubmatch(name)
	if m == nil {
		m = manifestNames.FindStringSubmatch(name)
	}
	if m == nil || m[4] != fmt.Sprintf("%08x", run) {
		return 0, false
	}
	attempt, err := strconv.Atoi(m[3])
	return attempt, err == nil
}
