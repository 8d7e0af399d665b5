package proc

// prey is whom a sweep kills.
type prey struct {
	cookies map[string]bool
	marks   map[mark]bool            // theirs
	others  func(stat, environ) bool // beside those; nil: nobody
}

// preyOf is whoever has one of the cookies, in its environment or as a mark.
func preyOf(cookies ...string) prey {
	p := prey{cookies: map[string]bool{}, marks: map[mark]bool{}}
	for _, cookie := range cookies {
		p.cookies[cookie], p.marks[markOf(cookie)] = true, true
	}
	return p
}

// is tells whether a process is prey by anything but a mark.
func (p prey) is(s stat, env environ) bool {
	for _, cookie := range env.cookies {
		if p.cookies[cookie] {
			return true
		}
	}
	return p.others != nil && p.others(s, env)
}

// marked tells whether a process has one of the marks. A cookie in its environment says more, be it that of a run within this one whose marks
// could not be given.
func (p prey) marked(s stat, env environ) bool {
	return len(p.marks) > 0 && len(env.cookies) == 0 && !isHelper(s) && p.marks[readMark(s.pid)]
}
