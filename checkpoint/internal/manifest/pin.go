package manifest

import (
	"fmt"
	"strings"
)

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
