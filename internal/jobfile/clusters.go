package jobfile

import (
	"github.com/BurntSushi/toml"

	"ddpbatch/slurm"
)

// Clusters returns the clusters that sbatch may choose from, as "a,b". If it is empty, the job goes to the default cluster.
func (j *Job) Clusters() string {
	text, _ := j.Slurm.Get("clusters")
	if j.Slurm.Skips("clusters") {
		return ""
	}
	return text
}

// checkClusters checks that slurm.clusters is a list of names: a job whose submission was interrupted is searched for on each of the
// clusters.
func (c *checker) checkClusters(root *position) {
	key := toml.Key{"slurm", "clusters"}
	clusters := c.job.Clusters()
	if clusters == "" || !c.hasNoFault(key.String()) {
		return
	}
	if !slurm.AreClusters(clusters) {
		c.fault(root.at(key), key, `%s = %s: name one cluster, or several separated by commas ("a,b"): "sacctmgr list clusters" lists them`,
			key, short(clusters))
	}
}
