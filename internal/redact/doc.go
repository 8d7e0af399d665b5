// Package redact keeps values that may be secret out of what the program prints and reports. Whether a value may be secret is told by the
// name of its variable or key: one that holds KEY, TOKEN, SECRET, PASSWORD or CREDENTIAL, in capitals or not.
package redact
