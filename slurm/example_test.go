package slurm_test

import (
	"fmt"

	"ddpbatch/slurm"
)

func ExampleExpandHostlist() {
	hosts, err := slurm.ExpandHostlist("gpu[08-10]-ib,login", 100)
	fmt.Println(hosts, err)
	fmt.Println(slurm.FoldHostlist([]string{"n9", "n10", "n12"}))
	// Output:
	// [gpu08-ib gpu09-ib gpu10-ib login] <nil>
	// n[9-10,12]
}

func ExampleFromEnviron() {
	step := map[string]string{
		"SLURM_CLUSTER_NAME": "lab", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0",
		"SLURM_STEP_NODELIST": "n[3-4]", "SLURM_STEP_TASKS_PER_NODE": "2,1", "SLURM_STEP_NUM_TASKS": "3",
		"SLURM_NODEID": "1", "SLURM_PROCID": "2", "SLURM_LOCALID": "0",
	}
	a, err := slurm.FromEnviron(func(name string) (string, bool) { v, ok := step[name]; return v, ok })
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(a.NodeName(), a.Key(), a.TaskMode())
	fmt.Printf("%+v\n", a.Rank())
	// Output:
	// n4 lab/7.0.0 true
	// {Rank:2 WorldSize:3 LocalRank:0 LocalWorldSize:1 NodeRank:1 Nodes:2}
}
