// Package device gives each worker of a node its cores and its GPUs. It uses the mask of cores that this process was granted, the
// machine's topology, and the GPUs that Slurm or the user made visible.
//
//	node, err := device.This()
//	plan, err := node.Assign(device.Request{LocalRank: 1, LocalWorldSize: 4, GPUs: "auto", Lookup: os.LookupEnv})
//
// An error means that a request cannot be right, such as two workers on one GPU without the user's consent. A warning means that it
// is likely to be slow or to fail. The package binds and sets nothing itself: the plan lists what to bind and to set.
package device
