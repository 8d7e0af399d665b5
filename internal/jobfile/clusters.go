package jobfile

import (
	"regexp"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"
)

// Clusters lists the clusters that sbatch may choose from, as "a,b". Where it is empty the job goes to the default cluster.
func (j *Job) Clusters() string {
	text, _ := j.Slurm.Get("clusters")
	if j.Slurm.Skips("clusters") {
		return ""
	}
	return text
}

// clusterList is a list of clusters that are named.
var clusterList = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}(,[A-Za-z0-9_.-]{1,64})*$`)
})

// AreClusters reports whether a text names clusters: not "all", which may be others tomorrow.
func AreClusters(text string) bool {
	return clusterList().MatchString(text) && !strings.EqualFold(text, "all")
}

// checkClusters wants names: a job that no command lived to record is looked for on each of the clusters.
func (c *checker) checkClusters(root *position) {
	key := toml.Key{"slurm", "clusters"}
	clusters := c.job.Clusters()
	if clusters == "" || !c.hasNoFault(key.String()) {
		return
	}
	if !AreClusters(clusters) {
		c.fault(root.at(key), key, `%s = %s: name one cluster or several, with commas between ("a,b"): "sacctmgr list clusters" lists them`,
			key, short(clusters))
	}
}
