//go:build static || !linux || !(amd64 || arm64)

package clib

// Self is the program itself.
const Self = Library(0)

// Open returns ErrUnsupported.
func Open(string) (Library, error) { return 0, ErrUnsupported }

// Close does nothing: this build has no libraries.
func (Library) Close() {}

// Symbol returns 0.
func (Library) Symbol(string) Function { return 0 }

// Getenv returns "".
func Getenv(string) string { return "" }

// Setenv returns ErrUnsupported.
func Setenv(string, string, bool) error { return ErrUnsupported }

// Callback returns 0: this build cannot call C.
func Callback(func(a, b, c uintptr) uintptr) Function { return 0 }

// WithoutSignals calls f.
func WithoutSignals(f func() error) error { return f() }

// Do panics: this build has no functions to call.
func (*Call) Do(Function, ...uintptr) uintptr { panic("clib: " + ErrUnsupported.Error()) }
