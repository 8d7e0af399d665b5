package rundir

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"ddpbatch/internal/vfs"
)

// jobID matches a Slurm job ID: 123, an array element 123_4, or a component of a heterogeneous job 123+0.
var jobID = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[0-9]{1,20}([_+][0-9]{1,10})?$`) })

// clusterName matches the name of a Slurm cluster.
var clusterName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`) })

// IsJobID reports whether [Find] takes name for a job ID.
func IsJobID(name string) bool {
	_, _, ok := cutCluster(name)
	return ok
}

// cutCluster splits "123;lab" into job ID and cluster; "123" has no cluster. ok reports whether name is a job ID.
func cutCluster(name string) (id, cluster string, ok bool) {
	id, cluster, named := strings.Cut(name, ";")
	return id, cluster, jobID().MatchString(id) && (!named || clusterName().MatchString(cluster) && !strings.EqualFold(cluster, "all"))
}

// ErrLink means that the job ID is recorded, but that no link of that name points to the run, so that it is found only by its path.
var ErrLink = errors.New("the job has no link")

const maxJobID = 128 // bytes of the file jobid

// linkPrefix begins the names of the links from job IDs to runs. They are hidden files, so that runs/<name>-* in a shell matches each run
// once.
const linkPrefix = ".job-"

// cutLink splits .job-<name>-<jobid>, the name of a job's link. ok is false for other names, and if <name>-<jobid> is the name of a run
// directory.
func cutLink(link string) (name, id string, ok bool) {
	link, ok = strings.CutPrefix(link, linkPrefix)
	at := strings.LastIndexByte(link, '-')
	if !ok || at < 0 || !IsJobName(link[:at]) || !plainID(link[at+1:]) || runName().MatchString(link) {
		return "", "", false
	}
	return link[:at], link[at+1:], true
}

// SetJobID records the newest job ID, "123", or "123;lab" on a cluster other than the default, and points runs/.job-<name>-123 at the run.
// It replaces a link of that name that ddpbatch made for another run, since a rebuilt cluster counts from 1 again. Anything else of that
// name is left alone: the ID is still recorded, and the error is [ErrLink]. For an array element SetJobID records the ID without making a
// link.
func (d *Dir) SetJobID(id string) error {
	plain, _, ok := cutCluster(id)
	if !ok {
		return fmt.Errorf("record the job id: %q is not a Slurm job id", id)
	}
	if !d.IsOwn() { // root may cancel it, but the file would then be root's
		return fmt.Errorf("record job id %s: %w: %s belongs to another user", id, ErrExposed, d.Whole().path)
	}
	if err := writeBytes(filepath.Join(d.path, jobIDName), 0o600, []byte(id+"\n")); err != nil {
		return fmt.Errorf("record job id %s: %w", id, err)
	}
	if d.root != nil {
		return nil
	}
	return d.PointJobID(plain)
}

// jobLink returns the path of the link from a job ID to its run.
func (d *Dir) jobLink(id string) string {
	return filepath.Join(filepath.Dir(d.path), linkPrefix+d.Spec().Name+"-"+id)
}

// PointJobID points runs/.job-<name>-<jobid> at the run, as SetJobID does, but does not change the newest job ID. It is for the jobs of a
// chain after the first.
func (d *Dir) PointJobID(id string) error {
	if !jobID().MatchString(id) {
		return fmt.Errorf("record the job id: %q is not a Slurm job id", id)
	}
	if err := pointAt(d.jobLink(id), filepath.Base(d.path)); err != nil {
		return fmt.Errorf("link job id %s to its run: %w: %w", id, ErrLink, err)
	}
	return nil
}

// SetName makes a link by which the element is found, in the directory of the array's elements. If two elements have the same name, the
// link of the first remains.
func (d *Dir) SetName(name string) error {
	link := filepath.Join(filepath.Dir(d.path), name)
	if d.root == nil || filepath.Dir(link) != filepath.Dir(d.path) {
		return fmt.Errorf("name array element: %q is not a valid name", name)
	}
	if err := os.Symlink(filepath.Base(d.path), link); err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("name array element: %w", err)
	}
	return nil
}

// pointAt makes link a symbolic link to target, a run directory next to it. It makes the link under another name and renames it, so that
// link always exists.
func pointAt(link, target string) error {
	info, err := os.Lstat(link)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return err
	case info.Mode()&os.ModeSymlink == 0:
		return fmt.Errorf("%s is in the way and is not a link of ddpbatch's: move it", link)
	default:
		old, err := os.Readlink(link)
		if err != nil {
			return err
		}
		if old == target {
			return nil
		}
		if !runName().MatchString(old) {
			return fmt.Errorf("%s is in the way and points at %s, which is not a run next to it: move it", link, old)
		}
	}
	temp := filepath.Join(filepath.Dir(link), ".link-"+target)
	if err := ignoreGone(os.Remove(temp)); err != nil {
		return err
	}
	if err := os.Symlink(target, temp); err != nil {
		return err
	}
	if err := os.Rename(temp, link); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return vfs.OS{}.SyncDir(filepath.Dir(link))
}

// JobID returns the newest job ID, or "" if there is none yet.
func (d *Dir) JobID() (string, error) {
	id, _, err := d.recordedJob()
	return id, err
}

// Cluster returns the cluster of the newest job of the run, or of the whole array that it is an element of; "" is the default cluster. If
// it cannot be read the result is "", and JobID returns the error.
func (d *Dir) Cluster() string {
	_, cluster, _ := d.Whole().recordedJob()
	return cluster
}

func (d *Dir) recordedJob() (id, cluster string, err error) {
	path := filepath.Join(d.path, jobIDName)
	data, err := readFile(path, maxJobID)
	if errors.Is(err, os.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("read the job id: %w", err)
	}
	text := strings.TrimSpace(string(data))
	id, cluster, ok := cutCluster(text)
	if !ok {
		return "", "", fmt.Errorf("read the job id: %s holds %q", path, text)
	}
	return id, cluster, nil
}

// SlurmLogPath returns the file that the batch script of job jobID writes to. Other text, such as sbatch's pattern %j, is used unchanged
// except for slashes.
func (d *Dir) SlurmLogPath(jobID string) string {
	return filepath.Join(d.Whole().path, "slurm-"+strings.ReplaceAll(jobID, "/", "_")+".log")
}

// Submissions is what the ledgers of a run and of its elements say about its jobs.
type Submissions struct {
	Jobs    []string // recorded, or begun before Open; newest last; for an array's elements, the array's jobs
	Open    *Event   // an EventSubmitting whose outcome is not recorded, or nil
	Lost    string   // the job that has begun since Open without being recorded, or ""
	Dropped bool     // an earlier submission than the newest has no recorded outcome
	TooLate []string // jobs that must not begin

	Chain []string // the jobs of the newest submission, in order, if it is a chain; nil if it is one job or an array
	Links int      // how many links the chain was to have
	Begun string   // the job of Chain that began last, or ""
}

// clockError is the largest expected difference between the clocks of two nodes.
const clockError = time.Minute

// Submissions reads from the ledgers how a run was submitted.
func (d *Dir) Submissions() (Submissions, error) {
	history, err := d.ownLedger()
	if err != nil {
		return Submissions{}, err
	}
	return d.submissionsIn(history)
}

// RecordJob adds e, which names the job that the run was submitted as. It adds nothing if that job is already the newest in the ledger,
// because the job may have recorded itself when it began. No other process can add a cancel between the check and the addition.
func (d *Dir) RecordJob(e Event) (added bool, err error) {
	err = d.appendIf(e, func(ledger *os.File) bool {
		added = true
		data, err := io.ReadAll(io.NewSectionReader(ledger, 0, maxLedger))
		if err != nil {
			return added // one line too many is better than a missing one
		}
		known, err := d.submissionsIn(parseLedger(data))
		id, _ := e.SubmittedJob()
		added = err != nil || known.Open != nil || known.Newest() != id
		return added
	})
	return added, err
}

// submissionsIn is Submissions for the given events of the run's ledger. It reads the ledgers of the elements itself.
func (d *Dir) submissionsIn(history []Event) (Submissions, error) {
	var s Submissions
	for _, e := range history {
		s.add(e)
	}
	elements, err := d.Elements()
	if err != nil {
		return Submissions{}, err
	}
	for _, element := range elements {
		history, err := element.ownLedger()
		if err != nil {
			return Submissions{}, err
		}
		for _, e := range history {
			if e.Event == EventBegin {
				s.elementBegan(e)
			}
		}
	}
	return s, nil
}

func (s *Submissions) add(e Event) {
	switch e.Event {
	case EventSubmitting:
		s.Dropped = s.Dropped || s.Open != nil && s.Lost == ""
		s.know(s.Lost)
		s.Open, s.Lost = &e, ""
	case EventNotTaken:
		s.Open = nil
	case EventTooLate:
		s.TooLate = append(s.TooLate, e.Job)
	case EventSubmit, EventResume, EventLink:
		id, ok := e.SubmittedJob()
		if !ok {
			return
		}
		s.know(s.Lost)
		s.know(id)
		s.Open, s.Lost = nil, ""
		s.addToChain(e, id)
	case EventBegin:
		s.began(e.Job)
	}
}

// addToChain adds a recorded submission of a link to the chain.
func (s *Submissions) addToChain(e Event, id string) {
	if e.Event != EventLink {
		s.Chain, s.Links, s.Begun = nil, 0, ""
	}
	if e.Links > 1 && !slices.Contains(s.Chain, id) {
		s.Chain, s.Links = append(s.Chain, id), e.Links
	}
}

// Place returns a job's place in the chain, from 1, or 0 if it is not in the chain.
func (s Submissions) Place(job string) int { return slices.Index(s.Chain, job) + 1 }

// Current returns the job of the newest submission that counts: for a chain the link that began last, or else the first.
func (s Submissions) Current() string {
	switch {
	case s.Begun != "":
		return s.Begun
	case len(s.Chain) > 0:
		return s.Chain[0]
	}
	return s.Newest()
}

// began records that a job, or an element of it, began.
func (s *Submissions) began(job string) {
	job, _, _ = strings.Cut(job, "_")
	switch {
	case slices.Contains(s.Chain, job):
		s.Begun = job
	case s.Known(job):
	case s.Open == nil: // submitted by hand
		s.know(job)
		s.Chain, s.Links, s.Begun = nil, 0, ""
	default:
		s.Lost = job
	}
}

// elementBegan is began for an event of an element's ledger. A job that began long before the newest submission is an old one, even if it
// was not recorded.
func (s *Submissions) elementBegan(e Event) {
	job, _, _ := strings.Cut(e.Job, "_")
	if job != "" && !s.Known(job) && s.Open != nil && e.Time.Before(s.Open.Time.Add(-clockError)) {
		s.Jobs = slices.Insert(s.Jobs, 0, job)
		return
	}
	s.began(job)
}

// know makes a job the newest. An ID may occur twice, because a rebuilt cluster counts from 1 again.
func (s *Submissions) know(job string) {
	if job != "" {
		s.Jobs = append(slices.DeleteFunc(s.Jobs, func(known string) bool { return known == job }), job)
	}
}

// Known reports whether a job, or an element of it, is recorded as the run's.
func (s Submissions) Known(job string) bool {
	job, _, _ = strings.Cut(job, "_")
	return slices.Contains(s.Jobs, job)
}

// Newest returns the newest of Jobs, or "" if there is none.
func (s Submissions) Newest() string {
	if len(s.Jobs) == 0 {
		return ""
	}
	return s.Jobs[len(s.Jobs)-1]
}
