package manifest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
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

// RecordName names the record of an attempt of a run, which stands in it as in a Tag.
func RecordName(attempt int, run uint32) string {
	return fmt.Sprintf("attempt-%09d-%08x.json", attempt, run)
}

// ParseRecordName is the inverse of RecordName; false for any other name.
func ParseRecordName(name string) (attempt int, run uint32, ok bool) { return parseName(name, "json") }

var attemptNames = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^attempt-([0-9]{9})-` + hex32 + `\.(json|removing)$`)
})

// parseName reads the attempt and the run in a name with such an ending.
func parseName(name, ending string) (attempt int, run uint32, ok bool) {
	m := attemptNames().FindStringSubmatch(name)
	if m == nil || m[3] != ending {
		return 0, 0, false
	}
	return number(m[1]), hexNumber(m[2]), true
}

// GateName names the folder through which an attempt of a run takes the manifests of checkpoints that it removes; a file of that name says
// that it may remove no more.
func GateName(attempt int, run uint32) string {
	return fmt.Sprintf("attempt-%09d-%08x.removing", attempt, run)
}

// ParseGateName is the inverse of GateName; false for any other name.
func ParseGateName(name string) (attempt int, run uint32, ok bool) {
	return parseName(name, "removing")
}

// StepFolder names the folder that the first save of a step makes.
func StepFolder(step int64) string { return fmt.Sprintf("step-%012d", step) }

// FreshFolder names a folder for a save that finds StepFolder's name taken.
func FreshFolder(step int64, attempt int, nonce uint32) string {
	return fmt.Sprintf("%s.%d-%08x", StepFolder(step), attempt, nonce)
}

// BrokenFolder is what a folder is renamed to once its bytes have twice been found damaged.
func BrokenFolder(name string) string { return name + ".broken" }

// BrokenFolderAgain is for a folder whose BrokenFolder is there already.
func BrokenFolderAgain(name string, nonce uint32) string {
	return fmt.Sprintf("%s-%08x", BrokenFolder(name), nonce)
}

// Folder is what the name of a checkpoint's folder says. Two names never give the same.
type Folder struct {
	Step    int64
	Fresh   bool   // a name of FreshFolder, with
	Attempt int    // its attempt
	Nonce   uint32 // and random number; both are 0 in a name of StepFolder

	Broken      bool   // renamed: no checkpoint any more, kept for people to look at
	Again       bool   // by BrokenFolderAgain, with
	BrokenNonce uint32 // its random number
}

// folderNames is compiled when it is first needed, as shardNames is.
var folderNames = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^step-([0-9]{12})(?:\.` + decimal + `-` + hex32 + `)?(\.broken(?:-` + hex32 + `)?)?$`)
})

// ParseFolder reads a folder's name; false for one that is not a checkpoint's.
func ParseFolder(name string) (Folder, bool) {
	m := folderNames().FindStringSubmatch(name)
	if m == nil {
		return Folder{}, false
	}
	step, _ := strconv.ParseInt(m[1], 10, 64) // twelve digits fit
	return Folder{
		Step:  step,
		Fresh: m[2] != "", Attempt: number(m[2]), Nonce: hexNumber(m[3]),
		Broken: m[4] != "", Again: m[5] != "", BrokenNonce: hexNumber(m[5]),
	}, true
}

// PinnedName is a file that keeps the checkpoint in whose folder it lies for ever.
const PinnedName = "PINNED"

// PinName names a pin; with a label, there may be several in one folder.
func PinName(label string) string {
	if label == "" {
		return PinnedName
	}
	return PinnedName + "." + label
}

// ParsePin returns the label of a pin ("": none); false where name is not one. It takes labels
// that CheckPinLabel refuses, since people make pins by hand.
func ParsePin(name string) (label string, ok bool) {
	if name == PinnedName {
		return "", true
	}
	label, ok = strings.CutPrefix(name, PinnedName+".")
	return label, ok && label != ""
}

// CheckPinLabel refuses a label that is not [A-Za-z0-9_-]{0,64}.
func CheckPinLabel(label string) error {
	ok := len(label) <= 64
	for _, c := range []byte(label) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-')
	}
	if !ok {
		return fmt.Errorf("label %s of a pin is not up to 64 of A-Z, a-z, 0-9, _ and -", quote(label))
	}
	return nil
}
