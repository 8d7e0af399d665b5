package submission

import (
	"context"
	"errors"
	"testing"

	"ddpbatch/slurm"
)

// asks makes the run's job request clusters.
func (w *world) asks(clusters string) {
	w.t.Helper()
	spec := w.run.Spec()
	spec.Clusters = clusters
	w.Must(w.run.WriteSpec(spec))
}

// If a job begins before it was recorded, NoteBegin records it. It also records the cluster if other commands need the name.
func TestNoteBeginRecordsTheCluster(t *testing.T) {
	for name, test := range map[string]struct {
		asks, before, here, left string
	}{
		"the job asks for one":  {"east", "submitting", "east", "submitting; resume job 13; jobid 13 on east"},
		"or for one of several": {"west,east", "submitting", "east", "submitting; resume job 13; jobid 13 on east"},
		"Slurm does not say":    {"west,east", "submitting", "", "submitting; resume job 13; jobid 13"},
		"it asks for none":      {"", "submitting", "east", "submitting; resume job 13; jobid 13"},
		"submitted by hand":     {"east", "submit job 12; jobid 12;east", "east", "submit job 12; jobid 13 on east"},
		"the one that was before": {"", "submit job 12; jobid 12;east; submitting", "east",
			"submit job 12; submitting; resume job 13; jobid 13 on east"},
		"another than before": {"", "submit job 12; jobid 12;west; submitting", "east",
			"submit job 12; submitting; resume job 13; jobid 13"},
		"recorded, as it was told": {"", "submit job 13; jobid 13;east", "", "submit job 13; jobid 13 on east"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.asks(test.asks)
			w.before(test.before)
			e := w.env()
			e.Cluster = test.here
			w.Must(e.NoteBegin(w.run, "13"))
			w.wantLeft(w.run, test.left)
		})
	}
}

// A job that was not recorded is looked for on each cluster where the run may be.
func TestNewestAsksTheClusters(t *testing.T) {
	for name, test := range map[string]struct {
		asks, recorded string
		on             string // the cluster that has a job of the script
		job            slurm.JobID
		asked          []string
	}{
		"none is named":             {"", "", "", slurm.JobID{ID: "500"}, []string{""}},
		"one is":                    {"east", "", "east", slurm.JobID{ID: "500", Cluster: "east"}, []string{"east"}},
		"several are":               {"west,east", "", "east", slurm.JobID{ID: "500", Cluster: "east"}, []string{"west", "east"}},
		"the run was on another":    {"west", "400;east", "east", slurm.JobID{ID: "500", Cluster: "east"}, []string{"east", "west"}},
		"the run was here":          {"west", "400", "", slurm.JobID{ID: "500"}, []string{"", "west"}},
		"the shell named it":        {"", "400;east", "east", slurm.JobID{ID: "500", Cluster: "east"}, []string{"east"}},
		"no cluster has a job":      {"west,east", "", "south", slurm.JobID{Cluster: "west"}, []string{"west", "east"}},
		"the same number elsewhere": {"west,east", "400;west", "east", slurm.JobID{ID: "500", Cluster: "east"}, []string{"west", "east"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.asks(test.asks)
			if test.recorded != "" {
				w.before("submit job 400")
				w.Must(w.run.SetJobID(test.recorded))
			}
			w.before("submitting")
			w.QueueOf(w.run, "500 PENDING")
			all, err := w.env().Slurm.UserJobs(t.Context(), "")
			w.Must(err)
			var asked []string
			s, err := Newest(t.Context(), w.run, false, func(_ context.Context, cluster, _ string) (slurm.UserJobs, error) {
				asked = append(asked, cluster)
				if cluster == test.on {
					return all, nil
				}
				return nil, nil
			})
			if err != nil || s.JobID() != test.job || s.Alive != nil || len(asked) != len(test.asked) {
				t.Fatalf("found %v, %v, alive %v, asked %q; want %v, %q", s.JobID(), err, s.Alive, asked, test.job, test.asked)
			}
			for i := range asked {
				if asked[i] != test.asked[i] {
					t.Errorf("asked %q, want %q", asked, test.asked)
				}
			}
		})
	}
}

// If one cluster does not answer, Newest reports it in Asked, because a job may be there.
func TestNewestNeedsEveryCluster(t *testing.T) {
	w := newWorld(t)
	w.asks("west,east")
	w.before("submitting")
	s, err := Newest(t.Context(), w.run, false, func(_ context.Context, cluster, _ string) (slurm.UserJobs, error) {
		if cluster == "east" {
			return nil, slurm.ErrUnreachable
		}
		return nil, nil
	})
	if err != nil || !errors.Is(s.Asked, slurm.ErrUnreachable) {
		t.Errorf("%+v, %v", s, err)
	}
}
