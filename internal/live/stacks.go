package live

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ddpbatch/internal/jobenv"
	"ddpbatch/internal/proc"
	"ddpbatch/internal/text"
	"ddpbatch/mpi/launch/watch"
)

const (
	stacksLimit = time.Minute // for all nodes to answer
	maxAnswer   = 64 << 20    // bytes of one rank's answer, unpacked
	maxWaiting  = 32 << 20    // bytes kept of answers that are not complete
	frameBytes  = 300         // of packed data in a line: srun passes on lines of up to 1 KiB whole
	frameMark   = "ddpbatch-stacks"
)

// Stacks holds the stacks of all ranks of an attempt. Its JSON names are a contract (docs/cli/stacks.md).
type Stacks struct {
	Job     string        `json:"job"`
	RunDir  string        `json:"run_dir"`
	Attempt int           `json:"attempt"`
	Time    time.Time     `json:"time"`
	Groups  []StacksGroup `json:"groups"`  // ranks with the same stacks, sorted by their first rank
	Missing []Rank        `json:"missing"` // ranks without a process, or on a node that did not answer
}

// StacksGroup holds ranks whose threads are at the same place.
type StacksGroup struct {
	Ranks     []RankProcess `json:"ranks"`
	Condition string        `json:"condition"` // what the first thread of the first rank waits for: "in futex"
	Text      string        `json:"stacks"`    // of the first rank
}

// RankProcess is a rank and its process.
type RankProcess struct {
	Rank
	PID int `json:"pid"`
}

// rankStacks is what the program on a node reports for one rank.
type rankStacks struct {
	RankProcess
	Condition string `json:"condition"`
	Text      string `json:"text"`
	Alike     string `json:"alike"` // equal for two ranks that are at the same place
}

// Stacks reads the stacks of all ranks, with one process per node. The messages of srun go to errs. Nodes that have not answered within a
// minute are left out. A failure to run the program on the nodes is returned only if no node has answered.
func (j *Job) Stacks(ctx context.Context, now time.Time, errs io.Writer) (Stacks, error) {
	s := Stacks{Job: j.ID, RunDir: j.Run.Path(), Attempt: j.Attempt, Time: now, Missing: []Rank{}}
	found, err := j.find(Where{All: true})
	if err != nil {
		return s, err
	}
	limited, cancel := context.WithTimeout(ctx, stacksLimit)
	defer cancel()
	var answers frames
	_, err = j.runOn(limited, found.hosts, Streams{Out: &answers, Err: errs}, func(host string) []string {
		return []string{"beside", "stacks", "--node", host, "--", j.Run.Path()}
	})
	if ctx.Err() != nil {
		return s, err
	}
	all := answers.all()
	if len(all) == 0 && err != nil && limited.Err() == nil {
		return s, err
	}
	s.Groups = fold(all)
	for _, r := range j.Ranks {
		if !slices.ContainsFunc(all, func(a rankStacks) bool { return a.Number == r.Number }) {
			s.Missing = append(s.Missing, r)
		}
	}
	return s, nil
}

// fold groups the ranks that are at the same place.
func fold(all []rankStacks) []StacksGroup {
	slices.SortStableFunc(all, func(a, b rankStacks) int { return cmp.Compare(a.Number, b.Number) })
	all = slices.CompactFunc(all, func(a, b rankStacks) bool { return a.Number == b.Number })
	groups := []StacksGroup{}
	at := map[string]int{}
	for _, r := range all {
		i, known := at[r.Alike]
		if !known {
			i = len(groups)
			at[r.Alike] = i
			groups = append(groups, StacksGroup{Condition: r.Condition, Text: r.Text})
		}
		groups[i].Ranks = append(groups[i].Ranks, r.RankProcess)
	}
	return groups
}

// Stacks reads the stacks of the ranks on this node, and writes them in the form that [Job.Stacks] reads.
func (n Node) Stacks(ctx context.Context, out io.Writer) error {
	here, err := n.Ranks()
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	var failed error
	for _, p := range here {
		wg.Go(func() {
			answer := n.look(ctx, p)
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, writeFrames(out, answer))
		})
	}
	wg.Wait()
	return failed
}

// look returns where the threads of one rank are.
func (n Node) look(ctx context.Context, p Process) rankStacks {
	var said bytes.Buffer
	dumper := watch.Dumper{PySpy: findProgram("py-spy", p.Environ)}
	_ = dumper.Look(ctx, p.PID, &said) // writing to a buffer does not fail
	r := rankStacks{RankProcess: RankProcess{Rank{p.Rank, n.Name}, p.PID}, Condition: watch.Where(p.PID).Text, Text: said.String()}
	sum := sha256.Sum256([]byte(r.Condition + "\n" + alike(r.Text, numbersOf(p.PID))))
	r.Alike = hex.EncodeToString(sum[:8])
	return r
}

// findProgram looks a program up in the PATH of an environment. It returns "" if there is none.
func findProgram(name string, environ []string) string {
	folders, _ := jobenv.LookupIn(environ)("PATH")
	for _, folder := range filepath.SplitList(folders) {
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); filepath.IsAbs(path) && err == nil && info.Mode().IsRegular() &&
			unix.Access(path, unix.X_OK) == nil {
			return path
		}
	}
	return ""
}

// numbersOf returns the IDs of a rank's processes and threads, and of its agent.
func numbersOf(pid int) map[string]bool {
	numbers := map[string]bool{}
	relatives, _ := proc.Relatives(pid)
	for _, r := range relatives {
		numbers[strconv.Itoa(r.PID)], numbers[strconv.Itoa(r.Parent)] = true, true
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", r.PID))
		for _, thread := range threads {
			numbers[thread.Name()] = true
		}
	}
	return numbers
}

// unlike matches what always differs between two ranks: addresses, and numbers that may be process IDs. Numbers of source lines follow a
// colon, and are not matched.
var unlike = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[ (]?0x[0-9a-fA-F]+|(^|[ (\n])[0-9]+`) })

// alike removes from a text what always differs between two ranks. It also drops the kernel's stack of a running thread, which changes from
// moment to moment.
func alike(said string, numbers map[string]bool) string {
	var b strings.Builder
	runs := false
	for line := range strings.Lines(said) {
		inKernel := strings.HasPrefix(line, "    ")
		if !inKernel {
			runs = strings.Contains(line, ": R (running)")
		}
		if !inKernel || !runs {
			b.WriteString(line)
		}
	}
	return unlike().ReplaceAllStringFunc(b.String(), func(found string) string {
		if before, _, address := strings.Cut(found, "0x"); address {
			return before + "0x"
		}
		digits := strings.TrimLeft(found, " (\n")
		if !numbers[digits] {
			return found
		}
		return strings.TrimSuffix(found, digits) + "#"
	})
}

// writeFrames writes an answer in lines short enough for srun to pass on whole, as it mixes the lines of several nodes. A line holds the
// mark, the rank's number, the line's index, the number of lines, and a part of the compressed answer.
func writeFrames(out io.Writer, answer rankStacks) error {
	plain, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, err = zip.Write(plain)
	if err = errors.Join(err, zip.Close()); err != nil {
		return err
	}
	parts := slices.Collect(slices.Chunk(packed.Bytes(), frameBytes))
	for i, part := range parts {
		_, err := fmt.Fprintf(out, "%s %d %d %d %s\n", frameMark, answer.Number, i, len(parts), base64.StdEncoding.EncodeToString(part))
		if err != nil {
			return err
		}
	}
	return nil
}

// frames puts together the lines that writeFrames has written on any node. It skips other lines.
type frames struct {
	partial []byte
	kept    int // bytes in parts
	parts   map[int][][]byte
}

// Write always takes all of p.
func (f *frames) Write(p []byte) (int, error) {
	f.partial = append(f.partial, p...)
	for {
		line, rest, found := bytes.Cut(f.partial, []byte("\n"))
		if !found {
			break
		}
		f.add(string(line))
		f.partial = rest
	}
	if len(f.partial) > 4*frameBytes { // not one of our lines
		f.partial = f.partial[:0]
	}
	return len(p), nil
}

func (f *frames) add(line string) {
	words := strings.Fields(line)
	if len(words) != 5 || words[0] != frameMark {
		return
	}
	rank, err1 := strconv.Atoi(words[1])
	i, err2 := strconv.Atoi(words[2])
	of, err3 := strconv.Atoi(words[3])
	part, err4 := base64.StdEncoding.DecodeString(words[4])
	if errors.Join(err1, err2, err3, err4) != nil || rank < 0 || i < 0 || i >= of || of > maxWaiting/frameBytes ||
		f.kept+len(part) > maxWaiting {
		return
	}
	if f.parts == nil {
		f.parts = map[int][][]byte{}
	}
	if len(f.parts[rank]) == 0 {
		f.parts[rank] = make([][]byte, of)
	}
	if of == len(f.parts[rank]) && f.parts[rank][i] == nil {
		f.parts[rank][i] = part
		f.kept += len(part)
	}
}

// all returns the complete answers.
func (f *frames) all() (answers []rankStacks) {
	for rank, parts := range f.parts {
		zip, err := gzip.NewReader(bytes.NewReader(bytes.Join(parts, nil)))
		if err != nil {
			continue
		}
		var answer rankStacks
		if json.NewDecoder(bufio.NewReader(io.LimitReader(zip, maxAnswer))).Decode(&answer) == nil && answer.Number == rank {
			answers = append(answers, answer)
		}
	}
	return answers
}

// Print writes the groups of ranks, each with the stacks of its first rank.
func (s Stacks) Print(w io.Writer) {
	fmt.Fprintf(w, "job %s, attempt %d, %s\n", text.Clean(s.Job), s.Attempt, s.Time.Format(time.DateTime))
	for _, g := range s.Groups {
		var ranks []Rank
		for _, r := range g.Ranks {
			ranks = append(ranks, r.Rank)
		}
		fmt.Fprintf(w, "\n%s: %s\n", onHosts(ranks), text.Clean(g.Condition))
		if len(ranks) > 1 {
			fmt.Fprintf(w, "  (of rank %d)\n", ranks[0].Number)
		}
		for line := range strings.Lines(text.CleanLines(g.Text)) {
			fmt.Fprintln(w, "  "+strings.TrimRight(line, "\n"))
		}
	}
	if len(s.Missing) > 0 {
		fmt.Fprintf(w, "\n%s: no answer: the node did not answer in time, or the process has ended or has cleared its environment\n",
			onHosts(s.Missing))
	}
}

// onHosts formats ranks with their nodes: "ranks 0-3 on n1, n2".
func onHosts(ranks []Rank) string {
	var numbers []int
	var hosts []string
	for _, r := range ranks {
		numbers = append(numbers, r.Number)
		if host := text.Clean(r.Host); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	const shown = 8
	if more := len(hosts) - shown; more > 0 {
		hosts = append(hosts[:shown], fmt.Sprintf("and %d more nodes", more))
	}
	word := "ranks "
	if len(numbers) == 1 {
		word = "rank "
	}
	return word + spaced(numbers) + " on " + strings.Join(hosts, ", ")
}
