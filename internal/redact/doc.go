// Package redact keeps values that may be secret out of what the program prints and reports. The name of a variable or key decides whether
// its value may be secret: a name that contains KEY, TOKEN, SECRET, PASSWORD or CREDENTIAL, in upper or lower case.
package redact
