package slurm

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
)

// Advice says what to do about a job that sbatch refused, in terms of the keys of a job file. It is empty for other commands, and if Slurm
// gave no reason.
func (e *RefusedError) Advice() string {
	if e.Command != "sbatch" || e.Words == "" {
		return ""
	}
	for _, row := range refusals {
		if strings.Contains(e.Words, row.words) {
			return row.advice
		}
	}
	for _, form := range refusedOption() {
		if m := form.FindStringSubmatch(e.Words); m != nil {
			if advice, reserved := reservedOptions[m[1]]; reserved {
				return fmt.Sprintf("sbatch's --%s: %s", m[1], advice)
			}
			return fmt.Sprintf("correct slurm.%s in the job file", optionKey(m[1]))
		}
	}
	return "correct [slurm] in the job file; if the message is not sbatch's own, it comes from a rule of the site: ask its support"
}

// refusedOption are the forms in which sbatch names the option whose value it cannot read.
var refusedOption = sync.OnceValue(func() []*regexp.Regexp {
	return []*regexp.Regexp{
		regexp.MustCompile(`[Ii]nvalid --([a-z-]+) specification`),
		regexp.MustCompile(`[Ii]nvalid numeric value "[^"]*" for --([a-z-]+)`),
		regexp.MustCompile(`[Ii]nvalid argument \([^)]*\) for --([a-z-]+)`),
	}
})

// refusals maps messages of sbatch and of the controller (slurm_errno.c) to what to do about them. The first row that matches is used: if
// messages appear together, the more specific one stands first.
var refusals = []struct{ words, advice string }{
	{"Invalid partition name specified", `set slurm.partition to one that "sinfo -s" lists`},
	{"Invalid account or account/partition combination",
		`set slurm.account to one of your own, and slurm.partition to one that it may use: ` +
			`"sacctmgr show associations user=$USER" lists them`},
	{"Invalid qos specification", `set slurm.qos to one that you may use: ` +
		`"sacctmgr show associations user=$USER format=account,qos" lists them`},
	{"Invalid feature specification", `set slurm.constraint to what nodes have: "sinfo -o '%P %f'" lists it`},
	{"Invalid generic resource (gres) specification",
		`set slurm.gpus_per_node or slurm.gres to what nodes have: "sinfo -o '%P %G'" lists it`},
	{"Invalid node name specified", `correct slurm.nodelist, or slurm.exclude: "sinfo -N" lists the nodes`},
	{"Requested reservation is invalid", `set slurm.reservation to one that "scontrol show reservation" lists`},
	{"Access denied to requested reservation", `remove slurm.reservation, or have yourself or your account added to it`},
	{"Invalid license specification", `set slurm.licenses to what "scontrol show licenses" lists`},
	{"Invalid job array specification",
		`correct slurm.array: its indices must be below MaxArraySize ("scontrol show config")`},
	{"Job dependency problem", `correct slurm.dependency or --after: Slurm must still know each job that is named`},
	{"CPU count per node can not be satisfied",
		`lower launch.nproc_per_node or slurm.cpus_per_task: "sinfo -o '%P %c'" says how many cores ` +
			`nodes have`},
	{"Memory specification can not be satisfied", `lower slurm.mem, or slurm.mem_per_cpu: "sinfo -o '%P %m'" says how many MiB nodes have`},
	{"Requested node configuration is not available", `too few nodes have all that the job asks for at once: lower slurm.nodes, ` +
		`slurm.gpus_per_node, slurm.mem or launch.nproc_per_node, or take another slurm.partition ("sinfo -o '%P %D %c %m %G'")`},
	{"Requested time limit is invalid", `lower slurm.time: "sinfo -o '%P %l'" says how long jobs of a partition may run; ` +
		`slurm.chain spreads longer work over several jobs`},
	{"Node count specification invalid", `lower slurm.nodes: "scontrol show partition" says how many nodes a job may have`},
	{"is not a valid node count", `correct slurm.nodes in the job file`},
	{"More processors requested than permitted", `lower slurm.nodes, launch.nproc_per_node or slurm.cpus_per_task`},
	{"User's group not permitted to use this partition",
		`take another slurm.partition: "scontrol show partition" names the groups of each`},
	{"Job violates accounting/QOS policy", `ask for less (slurm.nodes, slurm.time, slurm.gpus_per_node), wait until other jobs of ` +
		`yours have ended, or take another slurm.qos`},
	{"Requested partition configuration not available now", `ask for less (slurm.nodes, slurm.time), or take another slurm.partition: ` +
		`"scontrol show partition" shows the limits and the state of each`},
	{"Job size specification needs to be provided", `set in [slurm] how much the job needs: the site requires it`},
	{"temporarily unable to accept job", `submit it again in a while: too many jobs are queued (MaxJobCount in slurm.conf)`},
	{"contains DOS line breaks", `save the script template, or what setup.script holds, with Unix line ends`},
	{"Batch script is empty", `correct the script template: it renders an empty script`},
	{"does not look like a batch script", `correct the script template: its first line must begin with "#!"`},
	{"Unable to open file", `check that the run directory exists and can be read`},
	{"unrecognized option", `this release of Slurm does not have the option: remove it from [slurm], or name it in slurm.skip`},
	{"are mutually exclusive", `remove all of these options but one from [slurm]`},
	{"No cluster '", `set slurm.clusters, or SLURM_CLUSTERS in the shell, to what "sacctmgr list clusters" lists`},
	{"invalid entry for --cluster", `set slurm.clusters, or SLURM_CLUSTERS in the shell, to what "sacctmgr list clusters" lists`},
}
