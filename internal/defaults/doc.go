// Package defaults finds the files in which the site and the user set defaults for all their jobs, and the user's own
// starter jobs.
//
// # What it guarantees
//
// The caller says where the site's file is; the environment has no influence on it. The user's file is below XDG_CONFIG_HOME, or else below
// HOME. A file that does not exist is skipped. So is a user's file that this process has no permission to look for, as HOME may be another
// user's. A file is refused with vfs.ErrExposed if it belongs to a user other than this one and root, or if others can write to it: what is
// in it becomes part of a script that runs as this user. The site's file is also refused if another user can replace it; for the user's own
// file, Exposed reports that. Reading does not block on a pipe.
//
// # Example
//
//	p := defaults.Places{Site: "/etc/ddpbatch.toml", User: defaults.UserFolder(lookup)}
//	d, err := p.Read()
//	job, warnings, err := d.Parse("job.toml", dir, text, nil)
package defaults
