package templates

import _ "embed"

// Batch is the template of the batch script; slurm.Script.Render fills it.
//
//go:embed batch.sh.tmpl
var Batch string
