package slurm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ddpbatch/internal/text"
)

// JobFacts is what scontrol reports about one job beside its [JobStatus]: what a batch script needs to know about its own job when it
// ends.
type JobFacts struct {
	JobStatus
	PreemptTime time.Time // when the job was, or will be, preempted; zero: it is not being preempted
	End         time.Time // EndTime; zero: no limit, or unknown
	Restarts    int       // how often the job was requeued; -1: unknown
	Exclude     string    // nodes that the job must not run on, as a host list; empty: none
	BatchFlag   int       // 1 for a batch job, and 1 more each time that Slurm requeued it at the end of its script; 0: unknown
	FailedNode  string    // the node whose failure ended the job's last start; empty: none
	NoRequeue   bool      // Slurm refuses to requeue it: --no-requeue, or JobRequeue=0 in slurm.conf
}

// Facts asks the controller once about one job, or one element of an array. Slurm prints times without a zone; Facts takes them to be in
// this machine's.
func (c *Client) Facts(ctx context.Context, id string) (JobFacts, error) {
	job, err := ParseJobID(id)
	if err != nil {
		return JobFacts{}, err
	}
	out, err := c.ask(ctx, "scontrol", onCluster(job.Cluster, "show", "job", "-o", job.ID)...)
	if err != nil {
		return JobFacts{}, fmt.Errorf("ask for job %s: %w", job.ID, err)
	}
	for _, facts := range parseFacts(out) {
		if facts.ID == job.ID || facts.RawID == job.ID {
			return facts, nil
		}
	}
	return JobFacts{}, fmt.Errorf("ask for job %s: %w", job.ID, ErrUnknownJob)
}

// parseFacts parses the output of "scontrol show job -o", as parseScontrol does.
func parseFacts(stdout []byte) []JobFacts {
	var all []JobFacts
	for line := range strings.Lines(string(stdout)) {
		jobs := parseScontrol([]byte(line))
		if len(jobs) != 1 {
			continue
		}
		_, tail, _ := strings.Cut(line, " UserId=")
		facts := JobFacts{JobStatus: jobs[0], Restarts: -1, Exclude: scontrolField(tail, "ExcNodeList", " ")}
		facts.BatchFlag, _ = strconv.Atoi(scontrolField(tail, "BatchFlag", " "))
		if n, err := strconv.Atoi(scontrolField(tail, "Restarts", " ")); err == nil {
			facts.Restarts = n
		}
		facts.FailedNode = scontrolField(tail, "FailedNode", " ")
		facts.NoRequeue = scontrolField(tail, "Requeue", " ") == "0"
		facts.PreemptTime = slurmTime(scontrolField(tail, "PreemptTime", " "))
		if facts.TimeLimit != "UNLIMITED" {
			facts.End = slurmTime(facts.EndTime)
		}
		if facts.Exclude == "(null)" {
			facts.Exclude = ""
		}
		all = append(all, facts)
	}
	return all
}

// parseScontrol parses the output of "scontrol show job -o": a line per job of Key=Value, separated by
// spaces. Values may contain spaces and are not quoted. Of the fields read here only the name and the reason
// may contain spaces; each is taken to end where the next key begins.
func parseScontrol(stdout []byte) []JobStatus {
	var jobs []JobStatus
	for line := range strings.Lines(string(stdout)) {
		line = strings.TrimSuffix(line, "\n")
		head, tail, found := strings.Cut(line, " UserId=")
		head, name, named := strings.Cut(head, " JobName=")
		if !found || !named || !strings.HasPrefix(head, "JobId=") {
			continue
		}
		jobs = append(jobs, scontrolJob(head, name, tail))
	}
	return jobs
}

func scontrolJob(head, name, tail string) JobStatus {
	// The reason may contain spaces. FailedNode, if there is one, stands between it and Dependency.
	reason, _, _ := strings.Cut(scontrolField(tail, "Reason", " Dependency="), " FailedNode=")
	return JobStatus{
		ID:        scontrolID(" " + head),
		RawID:     scontrolField(" "+head, "JobId", " "),
		Name:      name,
		State:     scontrolField(tail, "JobState", " "),
		Reason:    reason,
		EndTime:   scontrolField(tail, "EndTime", " "),
		TimeLimit: scontrolField(tail, "TimeLimit", " "),
	}
}

// scontrolID returns the job's id as squeue shows it.
func scontrolID(head string) string {
	if array := scontrolField(head, "ArrayJobId", " "); array != "" {
		element := scontrolField(head, "ArrayTaskId", " ")
		if strings.Trim(element, "0123456789") != "" {
			element = "[" + element + "]"
		}
		return array + "_" + element
	}
	if leader := scontrolField(head, "HetJobId", " "); leader != "" {
		return leader + "+" + scontrolField(head, "HetJobOffset", " ")
	}
	return scontrolField(head, "JobId", " ")
}

// scontrolField returns the value of the first " key=" in text, up to end.
func scontrolField(text, key, end string) string {
	_, value, _ := strings.Cut(text, " "+key+"=")
	value, _, _ = strings.Cut(value, end)
	return value
}

// slurmTime parses a time as scontrol writes it. It returns the zero time for "None", "Unknown" and any other text.
func slurmTime(s string) time.Time {
	at, err := time.ParseInLocation("2006-01-02T15:04:05", s, time.Local)
	if err != nil {
		return time.Time{}
	}
	return at
}

// DownNodes returns the nodes of a host list that are down, failing, or not answering ("down*", "mixed*").
func (c *Client) DownNodes(ctx context.Context, hostlist string) ([]string, error) {
	out, err := c.nodes(ctx, hostlist, "%N"+separator+"%T")
	if err != nil {
		return nil, err
	}
	var down []string
	for line := range strings.Lines(string(out)) {
		name, state, found := strings.Cut(strings.TrimSpace(line), separator)
		if found && lostState(state) && !slices.Contains(down, name) { // a node has a line for each of its partitions
			down = append(down, name)
		}
	}
	return down, nil
}

// nodes asks sinfo about the nodes of a host list. The answer has a line for each partition of each node, hidden partitions included.
func (c *Client) nodes(ctx context.Context, hostlist, format string) ([]byte, error) {
	if err := checkWord(hostlist); err != nil || hostlist == "" || strings.HasPrefix(hostlist, "-") {
		return nil, fmt.Errorf("ask for nodes: %s is not a list of nodes", clip(hostlist))
	}
	out, err := c.ask(ctx, "sinfo", "-a", "-h", "-N", "-n", hostlist, "-o", format)
	if err != nil {
		return nil, fmt.Errorf("ask for the nodes %s: %w", hostlist, err)
	}
	return out, nil
}

// stateMarks are the characters that sinfo appends to a node's state (sinfo(1), "NODE STATE CODES").
const stateMarks = "*~#!%$@^-+"

// lostState reports whether a node's state, as sinfo writes it, means that the node's processes are lost. An asterisk means that the node
// does not answer.
func lostState(state string) bool {
	word := strings.TrimRight(state, stateMarks)
	return word == "down" || word == "fail" || word == "failing" || word == "error" || strings.HasSuffix(state, "*")
}

// maxReason is how many bytes are kept of the reason why a node is drained.
const maxReason = 200

// Draining returns the nodes of a host list that get no new jobs because an administrator or Slurm drains them or expects them to fail. It
// maps each node to the reason, which may be empty. Jobs that already run there go on to their end.
func (c *Client) Draining(ctx context.Context, hostlist string) (reasons map[string]string, err error) {
	out, err := c.nodes(ctx, hostlist, strings.Join([]string{"%N", "%T", "%E"}, separator))
	if err != nil {
		return nil, err
	}
	return parseDraining(out), nil
}

func parseDraining(stdout []byte) map[string]string {
	reasons := map[string]string{}
	for line := range strings.Lines(string(stdout)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), separator, 3)
		if len(f) != 3 || f[0] == "" || !drainState(f[1]) {
			continue
		}
		reason := strings.TrimSpace(text.Clean(f[2]))
		if reason == "none" { // sinfo's word for a missing reason
			reason = ""
		}
		reasons[f[0]] = text.Cut(reason, maxReason)
	}
	return reasons
}

// drainState reports whether a node's state, as sinfo writes it, means that it gets no new jobs: "draining@", or, as scontrol and some
// formats of sinfo write it, "mixed+drain".
func drainState(state string) bool {
	for part := range strings.SplitSeq(state, "+") {
		switch strings.TrimRight(part, stateMarks) {
		case "drain", "draining", "drained", "fail", "failing":
			return true
		}
	}
	return false
}

// ClusterConfig holds the settings of Slurm's configuration (slurm.conf) that a job must know.
type ClusterConfig struct {
	KillWait      time.Duration // between the SIGTERM and the SIGKILL by which Slurm ends a job
	SrunPortRange string        // the ports that srun listens at, as "60001-63000"; empty: any
	MaxArraySize  int           // one more than the highest index of an array's elements; 0: arrays are disabled; -1: unknown
}

// ClusterConfig asks the controller for its configuration.
func (c *Client) ClusterConfig(ctx context.Context) (ClusterConfig, error) {
	settings, err := c.Settings(ctx)
	if err != nil {
		return ClusterConfig{}, err
	}
	config := ClusterConfig{SrunPortRange: settings["SrunPortRange"], MaxArraySize: -1}
	if config.SrunPortRange == "0-0" { // any
		config.SrunPortRange = ""
	}
	if size, err := strconv.ParseUint(settings["MaxArraySize"], 10, 31); err == nil {
		config.MaxArraySize = int(size)
	}
	config.KillWait, err = settings.KillWait()
	return config, err
}
