//go:build static || !linux || !(amd64 || arm64)

package clib

// Self is the program itself.
const Self = Library(0)

// Open returns ErrUnsupported.
func Open(string) (Library, error) { return 0, ErrUnsupported }

// Close does nothing: there is no Library.
func (Library) Close() {}

// Symbol returns 0.
func (Library) Symbol(string) Function { return 0 }

// Getenv returns nothing.
func Getenv(string) string { return "" }

// Setenv returns ErrUnsupported.
func Setenv(string, string, bool) error { return ErrUnsupported }

// Callback returns 0: there is no C.
func Callback(func(a, b, c uintptr) uintptr) Function { return 0 }

// WithoutSignals calls f.
func WithoutSignals(f func() error) error { return f() }

// Do panics: there is no Function.
func (*Call) Do(Function, ...uintptr) uintptr { panic("clib: " + ErrUnsupported.Error()) }
