package manifest

import (
	"fmt"
	"regexp"
	"strconv"
	"sync"
)

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

// String is the inverse of ParseFolder.
func (f Folder) String() string {
	name := StepFolder(f.Step)
	if f.Fresh {
		name = FreshFolder(f.Step, f.Attempt, f.Nonce)
	}
	switch {
	case f.Broken && f.Again:
		return BrokenFolderAgain(name, f.BrokenNonce)
	case f.Broken:
		return BrokenFolder(name)
	}
	return name
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
