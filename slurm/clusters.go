package slurm

import (
	"regexp"
	"strings"
	"sync"
)

// clusterList is a list of clusters that are named.
var clusterList = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}(,[A-Za-z0-9_.-]{1,64})*$`)
})

// AreClusters reports whether a text names clusters: not "all", which may be others tomorrow.
func AreClusters(text string) bool {
	return clusterList().MatchString(text) && !strings.EqualFold(text, "all")
}
