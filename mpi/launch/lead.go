package launch

import (
	"fmt"
	"time"
)

// lead is how long before its end the job is warned; why, at the end of a sentence, where that is not what the policy says: attempts before this
// one have needed longer to end.
func (m *meeting) lead() (lead time.Duration, why string) {
	c := m.cfg
	if c.RunDir == nil || c.Builtin {
		return c.Policy.Lead, ""
	}
	history, err := answered("read the ledger", c.RunDir.Ledger)
	if err != nil {
		c.Log.Warn("how long attempts before this one took to save is not known", "error", err)
		return c.Policy.Lead, ""
	}
	lead, longest := c.Policy.LeadFor(c.Attempt, history, time.Until(c.Deadline))
	if longest > 0 {
		why = fmt.Sprintf("; warned %v before it, as an earlier attempt took %v from its warning to its end", lead.Round(time.Second), longest.Round(time.Second))
	}
	return lead, why
}

// leadS is lead in seconds, once agent 0 goes by it; 0: it does not.
func (m *meeting) leadS() float64 { return time.Duration(m.led.Load()).Seconds() }

// sinceWarning is how many seconds ago this agent's workers were warned, to the millisecond; 0: they were not.
func (s *supervisor) sinceWarning() float64 {
	if s.warnedAt.IsZero() {
		return 0
	}
	return max(time.Millisecond, time.Since(s.warnedAt).Round(time.Millisecond)).Seconds()
}
