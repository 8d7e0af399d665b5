package checkpoint

// Place is what rank 0 tells the other ranks, as JSON, so that they open the same folder for the
// same attempt.
type Place struct {
	Path    string `json:"path"`
	Run     string `json:"run"`
	Attempt int    `json:"attempt"`
	Codec   string `json:"codec"`
}

// Place is where d saves, and as whom.
func (d *Dir) Place() Place {
	return Place{Path: d.path, Run: d.opt.Run, Attempt: d.opt.Attempt, Codec: d.opt.Codec}
}

// OpenPlace opens the folder of another rank. Run, attempt and codec are the place's, all else is
// from o. A rank that does not commit needs no fence and no policy.
func OpenPlace(p Place, o Options) (*Dir, error) {
	o.Run, o.Attempt, o.Codec = p.Run, p.Attempt, p.Codec
	return Open(p.Path, o)
}
