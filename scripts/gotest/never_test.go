package main

import "testing"

// Each is what a failed test printed, or its name, and no second run may hide it.
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
		{"a resumed run", "ddpbatch/trainer", "TestResumeAtEveryStep/world_2", "p_test.go:1: resumed from step 3: {Loss:1}"},
		{"a result", "p", "TestP", "p_test.go:1: step 2: rank 1: scan of 3: <nil>; result right: false"},
		{"a seed of chance", "p", "TestConformance", "p_test.go:1: seed 1234"},
		{"a seed of chance", "p", "TestKernels", "p_test.go:1: seed 0xabc"},
		{"a choice of chance", "p", "TestHandmade/tcp", "p_test.go:1: deterministic: false"},
		{"a choice of chance", "p", "TestProcesses/tcp/handmade", "p_test.go:1: scan, deterministic true: want 3"},
		{"a port", "p", "TestP", "OSError: [Errno 98] Address already in use"},
		{"a panic", "p", "", "p_test.go:1: waits\npanic: no\n"},
		{"a lock", "p", "TestOnceUnderLease", ""},
		{"a lock", "p", "TestCacheIsHeld", ""},
		{"security", "ddpbatch/internal/secure", "TestP", ""},
		{"security, by docs/security.md", "p", "TestCallers", ""},
		{"a subtest of that", "p", "TestCallers/below", ""},
		{"a subtest that docs/security.md names", "p", "TestAll/key", ""},
		{"what is below it", "p", "TestAll/key/below", ""},
	} {
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
		{"ddpbatch/cmd/ddpbatch", "TestResumesAtOnce", "p_test.go:1: exited with code 166 {Seed:1 Exit:660}"},
		{"p", "TestSlurm/Crash", "p_test.go:1: it ended with 143"},
	} {
		o := outcome{failed: []test{{c.pkg, c.name}}, said: map[test]string{{c.pkg, c.name}: c.said}}
		if tests, why := o.again([]string{"TestCallers", "TestAll/key"}); why != "" || len(tests) != 1 {
			t.Errorf("%s, after %q: %s", c.name, c.said, why)
		}
	}
}

func TestNamesOfWhatNeverFailsByChance(t *testing.T) {
	for name, never := range map[string]bool{
		"TestPortsAreClaimed": true, "TestMasterPort/taken": true, "TestFlippedBitsOfDataAreFound": true, "TestNoLeak": true, "TestLock": true,
		"TestCacheOfAnotherUser": true, "TestOpenUnderLease": true, "TestTierIsHeld": true,
		"TestReport": false, "TestTransport": false, "TestExports": false, "TestBlocked": false, "TestHabit": false,
		"TestRelease": false, "TestWithheld": false,
	} {
		if neverNamed.MatchString(name) != never {
			t.Errorf("%s: never is %v", name, !never)
		}
	}
}
