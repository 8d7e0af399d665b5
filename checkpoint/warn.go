package checkpoint

import "fmt"

// warnOnce says what is wrong with something that is passed over and stays as it is, the first time that this Dir comes by it: the look
// after each save would say it again.
func (d *Dir) warnOnce(message string, args ...any) {
	key := fmt.Sprint(append([]any{message}, args...)...)
	d.mu.Lock()
	_, told := d.told[key]
	d.told[key] = struct{}{}
	d.mu.Unlock()
	if !told {
		d.log.Warn(message, args...)
	}
}
