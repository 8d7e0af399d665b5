// Package defaults finds what the site and the user have laid down for all their jobs: a file of
// defaults each, and the user's own starter jobs.
//
// # What it guarantees
//
// The site's file is where the caller says, whatever the environment holds; the user's is below XDG_CONFIG_HOME, else below HOME.
// A file that is not there says nothing, nor does a user's that this process may not look for, as HOME may be another user's. One that
// belongs to another user than this one and root, or that others can write to, is refused with vfs.ErrExposed: what is in it becomes part
// of a script that runs as this user. Of the site's file, that another user can put another in its place is refused, too; of the user's
// own, Exposed tells it. A pipe is not waited for.
//
// # Example
//
//	p := defaults.Places{Site: "/etc/ddpbatch.toml", User: defaults.UserFolder(lookup)}
//	d, err := p.Read()
//	job, warnings, err := d.Parse("job.toml", dir, text, nil)
package defaults
