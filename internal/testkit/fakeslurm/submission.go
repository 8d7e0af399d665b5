package fakeslurm

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"ddpbatch/internal/rundir"
)

// OtherClaim is the claim of a command on another machine: process 7 on login2, which resumes the run.
const OtherClaim = `{"machine":"another","pid":7,"start":1,"host":"login2","doing":"resume","since":"2026-11-24T10:00:00Z","nonce":"x"}`

// OtherClaimWords is how errors and status describe it.
const OtherClaimWords = "resume by process 7 on login2, begun 2026-11-24 10:00:00"

// ClaimByOther makes that command take the claim of a run, even if it is held.
func ClaimByOther(t testing.TB, run *rundir.Dir) {
	t.Helper()
	dir := filepath.Join(run.Path(), "claims", "9")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "claim.json"), []byte(OtherClaim), 0o600); err != nil {
		t.Fatal(err)
	}
}

// LinesClaimByOther returns shell lines that do the same, for First.
func (p *Slurm) LinesClaimByOther(run *rundir.Dir) string {
	p.t.Helper()
	p.write("claim.json", OtherClaim)
	return fmt.Sprintf(`mkdir -p '%[1]s/claims/9' && cp '%[2]s/claim.json' '%[1]s/claims/9/'`, run.Path(), p.Dir)
}

// CutShort adds to a run's ledger the event of a resume whose command was killed before it recorded the outcome: of the whole run, or of
// one element of an array.
func CutShort(t testing.TB, run *rundir.Dir, element ...int) {
	t.Helper()
	event := rundir.Event{Time: time.Now(), Event: rundir.EventSubmitting, Detail: rundir.EventResume}
	for _, index := range element {
		event.Element = &index
	}
	if err := run.Append(event); err != nil {
		t.Fatal(err)
	}
}
