package main

import (
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"ddpbatch/internal/lint"
)

var root = filepath.Join("..", "..")

var testFiles = sync.OnceValues(func() (map[string][]string, error) { return lint.TestFiles(root) })

// mustBeThere checks that pkg has a test of this name, or of the first part of the name. If pkg is empty, any package may have it.
func mustBeThere(t *testing.T, pkg, name string) {
	t.Helper()
	files, err := testFiles()
	if err != nil {
		t.Fatal(err)
	}
	function, _, _ := strings.Cut(name, "/")
	in := filepath.Join(root, strings.TrimPrefix(pkg, "ddpbatch/"))
	if !slices.ContainsFunc(files[function], func(path string) bool { return pkg == "" || filepath.Dir(path) == in }) {
		t.Errorf("no test is called %s %s any more: take the name of another", pkg, function)
	}
}

// Each row is the output of a failed test, or its name, and no second run may hide the failure. Tests in packages of ddpbatch exist; TestP
// of p, TestCallers and TestAll are made up.
func TestWhatIsNeverRunAgain(t *testing.T) {
	for _, c := range []struct{ subject, pkg, name, said string }{
		{"a race", "p", "TestP", "WARNING: DATA RACE"},
		{"a race in a child", "p", "TestP", `p_test.go:1: rank 0: exit status 66; printed "", ""`},
		{"a race in a worker", "p", "TestP", "p_test.go:1: {Cause:crash Exit:66 Rank:0}"},
		{"a race in a worker", "p", "TestP", "p_test.go:1: rank 1 on n2 exited with code 66"},
		{"a race in a worker", "p", "TestP", `p_test.go:1: {"cause":"crash","exit":66}`},
		{"a race in a victim", "p", "TestP", "p_test.go:1: the script ended with 66"},
		{"a leaked process", "p", "TestP", "p_test.go:1: process 7 lives on, 45s after the test: ddpbatch"},
		{"a leaked process", "p", "TestP", "p_test.go:1: did not happen within 45s: the end of all processes"},
		{"a leaked process", "p", "TestP", "p_test.go:1: did not happen within 45s: no process of the run is left"},
		{"a leaked descriptor", "p", "TestP", "p_test.go:1: 9 descriptors are open, 8 were before"},
		{"another's descriptor", "p", "TestP", "p_test.go:1: another's descriptor was closed: EBADF"},
		{"bits", "p", "TestP", "p_test.go:1: sgemm: cut at 3 it has other bits"},
		{"bytes", "p", "TestP", "p_test.go:1: read as other bytes"},
		{"bytes", "p", "TestP", "p_test.go:1: rank 1 got something else"},
		{"a resumed run", "p", "TestP", "p_test.go:1: tensor w differs from w of the run that was never stopped"},
		{"a resumed run", "ddpbatch/trainer", "TestResumeAtEveryStepGivesTheSameBytes/world_2",
			"p_test.go:1: resumed from step 3: {Loss:1}"},
		{"a result", "p", "TestP", "p_test.go:1: step 2: rank 1: scan of 3: <nil>; result right: false"},
		{"a seed of chance", "ddpbatch/mpi", "TestConformanceOfEveryCollective", "p_test.go:1: seed 1234"},
		{"a seed of chance", "ddpbatch/trainer/blas/internal/tile", "TestKernelsAddInTheDefinedOrder/go", "p_test.go:1: seed 0xabc"},
		{"a choice of chance", "ddpbatch/mpi", "TestHandmadeCasesGiveTheirResults/tcp/2_ranks", "p_test.go:1: deterministic: false"},
		{"a choice of chance", "ddpbatch/mpi", "TestProcessesPassTheScenarios/tcp/handmade/2_ranks",
			"p_test.go:1: deterministic true: want 3"},
		{"a port", "p", "TestP", "OSError: [Errno 98] Address already in use"},
		{"a panic", "p", "", "p_test.go:1: waits\npanic: no\n"},
		{"a lock", "ddpbatch/trainer/data", "TestOnceWaitsForALease", ""},
		{"a lock", "ddpbatch/trainer/data", "TestCacheStaysHeldThoughItIsMoved", ""},
		{"security", "ddpbatch/internal/secure", "TestOpenTakesALongRunID", ""},
		{"security, by docs/security.md", "p", "TestCallers", ""},
		{"a subtest of that", "p", "TestCallers/below", ""},
		{"a subtest that docs/security.md names", "p", "TestAll/key", ""},
		{"what is below it", "p", "TestAll/key/below", ""},
	} {
		if strings.HasPrefix(c.pkg, "ddpbatch/") {
			mustBeThere(t, c.pkg, c.name)
		}
		o := outcome{failed: []test{{c.pkg, c.name}}, said: map[test]string{{c.pkg, c.name}: c.said}}
		if tests, why := o.again([]string{"TestCallers", "TestAll/key"}); why == "" {
			t.Errorf("%s: %q would be run again after %q", c.subject, tests, c.said)
		}
	}
}

func TestWhatMayBeRunAgain(t *testing.T) {
	for _, c := range []struct{ pkg, name, said string }{
		{"p", "TestAll/keys", "p_test.go:1: did not happen within 45s: the job runs"},
		{"p", "TestCallersOfAll", "p_test.go:1: exit code 1, 66 bytes"},
		{"ddpbatch/cmd/ddpbatch", "TestResumeJudgesEachElementAfresh", "p_test.go:1: exited with code 166 {Seed:1 Exit:660}"},
		{"p", "TestAll/Crash", "p_test.go:1: it ended with 143"},
	} {
		if strings.HasPrefix(c.pkg, "ddpbatch/") {
			mustBeThere(t, c.pkg, c.name)
		}
		o := outcome{failed: []test{{c.pkg, c.name}}, said: map[test]string{{c.pkg, c.name}: c.said}}
		if tests, why := o.again([]string{"TestCallers", "TestAll/key"}); why != "" || len(tests) != 1 {
			t.Errorf("%s, after %q: %s", c.name, c.said, why)
		}
	}
}

func TestNamesOfWhatNeverFailsByChance(t *testing.T) {
	for name, never := range map[string]bool{
		"TestMasterPortsAreClaimed": true, "TestMasterPortIsUsedAsGiven/taken": true, "TestFlippedBitsOfDataAreFound": true,
		"TestCacheOfAnotherUserIsNotTrusted": true, "TestTierIsHeldThoughItIsMoved": true, "TestFileUnderLeaseIsWaitedFor": true,
		"TestOnceWaitsForALease": true, "TestOpenWaitsForALease": true, "TestOpenWaitsForNoPipeBehindALease": true,
		"TestListenWhereAPortIsTaken": true, "TestGateReportsAStrangerOnce": true, "TestCallsEndThoughTheLockOfAWriterIsHeld": true,
		"TestReport": false, "TestLedgerIsLocked": false, "TestPackagesWithGoroutinesAreRaced": false,
	} {
		mustBeThere(t, "", name)
		if neverNamed.MatchString(name) != never {
			t.Errorf("%s: never is %v", name, !never)
		}
	}
}
