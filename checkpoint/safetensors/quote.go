package safetensors

import (
	"fmt"
	"strconv"
)

// maxQuoted is about how much of a name an error tells: files may have names of any length.
const maxQuoted = 80

// quoted is a name in an error.
func quoted(name string) string {
	if len(name) <= maxQuoted {
		return strconv.Quote(name)
	}
	const end = maxQuoted / 4
	return strconv.Quote(fmt.Sprintf("%s ... %d bytes ... %s", name[:maxQuoted-end], len(name)-maxQuoted, name[len(name)-end:]))
}
