package main

import "runtime/debug"

// agentGC takes the place of GOGC's 100. Go begins to collect garbage at 4 MB x GOGC / 100 (runtime/mgcpacer.go, heapMinimum), which an agent comes to
// in minutes as it looks after its workers, and needs a quarter of: it would be above 20 MB resident, for days, beside workers that need the
// memory.
const agentGC = 50

// keepSmall has this process keep less garbage, unless GOGC says how much.
func keepSmall(e *env) {
	if e.get("GOGC") == "" {
		debug.SetGCPercent(agentGC)
	}
}
