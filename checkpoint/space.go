package checkpoint

// Space is what Probe finds out about a file system. Free is a hint only: quotas and the single
// servers of a parallel file system fill up earlier.
type Space struct {
	Type  string `json:"type"` // "ext4", "nfs", "lustre", ...; empty where it is not known
	Free  uint64 `json:"free"` // bytes
	Total uint64 `json:"total"`
}
