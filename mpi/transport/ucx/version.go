package ucx

import "fmt"

// Version is that of a library.
type Version struct{ Major, Minor, Release uint32 }

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Release) }

// oldest is the first version whose structs are those of layout.go.
var oldest = Version{Major: 1, Minor: 13}

// before tells whether v is older than w, releases apart.
func (v Version) before(w Version) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}
