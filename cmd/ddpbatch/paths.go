package main

import (
	"ddpbatch/internal/text"
)

func (e *env) dir() text.Dir { return text.Dir(e.Dir) }

func (e *env) abs(path string) string { return e.dir().Abs(path) }

func (e *env) short(path string) string { return e.dir().Short(path) }

func (e *env) named(path string) string { return e.dir().Named(path) }
