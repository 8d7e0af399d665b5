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
	// DeletingName is the name of a manifest while its checkpoint is being removed.
	DeletingName = "MANIFEST.deleting"
	// TmpSuffix ends the name of every file that is being written.
	TmpSuffix = ".tmp"
)

// Tag is unique to one save: the attempt, the CRC-32C of the run's name, and a random number.
// So neither an earlier attempt that is still alive nor a second save of the same step writes to
// another save's file, and files that were copied in from another run are recognized by their names.
type Tag struct {
	Attempt    int // 0 to MaxAttempt
	Run, Nonce uint32
}

func (t Tag) String() string { return fmt.Sprintf("%d-%08x-%08x", t.Attempt, t.Run, t.Nonce) }

// ShardName returns the name of shard i of n for 0 <= i < n <= MaxShards. While the shard is written, TmpSuffix follows.
func (t Tag) ShardName(i, n int) string { return fmt.Sprintf("shard-%05d-of-%05d.%s.ddpt", i, n, t) }

// ManifestTmp returns the manifest's name until it is committed.
func (t Tag) ManifestTmp() string { return "MANIFEST." + t.String() + ".json" + TmpSuffix }

// RecordTmp returns the name of a lineage record until it is whole; the file is beside the checkpoints.
func (t Tag) RecordTmp() string { return "attempt." + t.String() + ".json" + TmpSuffix }

// ProbeName returns the name of a file that only tests whether files can be written to the folder.
func (t Tag) ProbeName() string { return "PROBE." + t.String() + TmpSuffix }

// decimal matches a number of up to nine digits as %d prints it, so that each number has only one text.
const (
	decimal = `(0|[1-9][0-9]{0,8})`
	hex32   = `([0-9a-f]{8})`
	tagText = decimal + `-` + hex32 + `-` + hex32
)

// The patterns are compiled when they are first needed: counted repetitions take long, and most processes need none.
var (
	shardNames = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^shard-([0-9]{5})-of-([0-9]{5})\.` + tagText + `\.ddpt(\.tmp)?$`)
	})
	tmpNames = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:MANIFEST\.` + tagText + `\.json|attempt\.` + tagText + `\.json|PROBE\.` + tagText + `)\.tmp$`)
	})
)

// shardFile is what the name of a shard file contains.
type shardFile struct {
	Shard, Shards int
	Tag           Tag
	Tmp           bool // still being written, or left by a writer that died
}

// parseShardName parses the result of ShardName, with or without TmpSuffix. It returns false for any other name.
func parseShardName(name string) (shardFile, bool) {
	m := shardNames().FindStringSubmatch(name)
	if m == nil {
		return shardFile{}, false
	}
	f := shardFile{Shard: number(m[1]), Shards: number(m[2]), Tag: parseTag(m[3:6]), Tmp: m[6] != ""}
	return f, f.Shard < f.Shards && f.Shards <= MaxShards
}

// isShardName reports whether name is that of a complete shard i of n, of any run and attempt.
func isShardName(name string, i, n int) bool {
	f, ok := parseShardName(name)
	return ok && f.Shard == i && f.Shards == n && !f.Tmp
}

// ParseTag returns the tag in a name that a method of Tag returned, and false for any other name.
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

// OwnFile returns the attempt that wrote a shard or a temporary file of a run. It returns false if the
// name has no Tag, or one of another run.
func OwnFile(name string, run uint32) (attempt int, ok bool) {
	t, ok := ParseTag(name)
	if !ok || t.Run != run {
		return 0, false
	}
	return t.Attempt, true
}

// parseTag parses the three groups of tagText.
func parseTag(groups []string) Tag {
	return Tag{Attempt: number(groups[0]), Run: hexNumber(groups[1]), Nonce: hexNumber(groups[2])}
}

// number parses digits that a pattern has accepted; they cannot overflow.
func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

func hexNumber(digits string) uint32 {
	n, _ := strconv.ParseUint(digits, 16, 32)
	return uint32(n)
}

// RecordName returns the name of the record of an attempt of a run. run is the same number as in a Tag.
func RecordName(attempt int, run uint32) string {
	return fmt.Sprintf("attempt-%09d-%08x.json", attempt, run)
}

// ParseRecordName is the inverse of RecordName. It returns false for any other name.
func ParseRecordName(name string) (attempt int, run uint32, ok bool) { return parseName(name, "json") }

var attemptNames = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^attempt-([0-9]{9})-` + hex32 + `\.(json|removing)$`)
})

// parseName returns the attempt and the run in a name with the given ending.
func parseName(name, ending string) (attempt int, run uint32, ok bool) {
	m := attemptNames().FindStringSubmatch(name)
	if m == nil || m[3] != ending {
		return 0, 0, false
	}
	return number(m[1]), hexNumber(m[2]), true
}

// GateName returns the name of the folder through which an attempt of a run moves the manifests of checkpoints that it removes. A file of
// that name means that the attempt may remove no more.
func GateName(attempt int, run uint32) string {
	return fmt.Sprintf("attempt-%09d-%08x.removing", attempt, run)
}

// ParseGateName is the inverse of GateName. It returns false for any other name.
func ParseGateName(name string) (attempt int, run uint32, ok bool) {
	return parseName(name, "removing")
}

// StepFolder returns the name of the folder that the first save of a step makes.
func StepFolder(step int64) string { return fmt.Sprintf("step-%012d", step) }

// FreshFolder returns the name of a folder for a save that finds StepFolder's name taken.
func FreshFolder(step int64, attempt int, nonce uint32) string {
	return fmt.Sprintf("%s.%d-%08x", StepFolder(step), attempt, nonce)
}

// BrokenFolder returns the name that a folder gets once its bytes have twice been found damaged.
func BrokenFolder(name string) string { return name + ".broken" }

// BrokenFolderAgain returns the name for a folder whose BrokenFolder exists already.
func BrokenFolderAgain(name string, nonce uint32) string {
	return fmt.Sprintf("%s-%08x", BrokenFolder(name), nonce)
}

// Folder is what the name of a checkpoint's folder contains. Different names give different Folders.
type Folder struct {
	Step    int64
	Fresh   bool   // the name is FreshFolder's
	Attempt int    // of a FreshFolder, else 0
	Nonce   uint32 // the random number of a FreshFolder, else 0

	Broken      bool   // it was renamed, does not count as a checkpoint any more, and is kept for inspection
	Again       bool   // the name is BrokenFolderAgain's
	BrokenNonce uint32 // the random number of a BrokenFolderAgain, else 0
}

// folderNames is compiled when it is first needed, like shardNames.
var folderNames = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^step-([0-9]{12})(?:\.` + decimal + `-` + hex32 + `)?(\.broken(?:-` + hex32 + `)?)?$`)
})

// ParseFolder parses a folder's name. It returns false if the name is not a checkpoint's.
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

// PinnedName is the name of a file that keeps the checkpoint in whose folder it is forever.
const PinnedName = "PINNED"

// PinName returns the name of a pin's file. With labels, one folder may have several.
func PinName(label string) string {
	if label == "" {
		return PinnedName
	}
	return PinnedName + "." + label
}

// ParsePin returns the label of a pin, which may be empty, and false if name is not that of a pin. It accepts labels
// that CheckPinLabel refuses, since people may create pins by hand.
func ParsePin(name string) (label string, ok bool) {
	if name == PinnedName {
		return "", true
	}
	label, ok = strings.CutPrefix(name, PinnedName+".")
	return label, ok && label != ""
}

// CheckPinLabel refuses a label that does not match [A-Za-z0-9_-]{0,64}.
func CheckPinLabel(label string) error {
	ok := len(label) <= 64
	for _, c := range []byte(label) {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-')
	}
	if !ok {
		return fmt.Errorf("pin label %s must be up to 64 of A-Z, a-z, 0-9, _ and -", quote(label))
	}
	return nil
}
