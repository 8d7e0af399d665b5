// Package device gives each worker of a node its cores and its GPUs: from the mask that this process was
// really granted, from what the machine looks like, and from the GPUs that Slurm or the user made visible.
//
//	node, err := device.This()
//	plan, err := node.Assign(device.Request{LocalRank: 1, LocalWorldSize: 4, GPUs: "auto", Lookup: os.LookupEnv})
//
// An error is a request that cannot be right, such as two workers on one GPU that nobody asked for; a warning is one that is
// likely to be slow or to fail. Nothing is bound or set here: the plan says what to bind and to set.
package device
