package stack

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

var goroutineHead = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^goroutine ([0-9]{1,9}) .*\[.*\]:$`)
})

var goroutineFile = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\t(.*\.(?:go|s)):([0-9]{1,9})( .*)?$`)
})

// Go reads what a program written in Go writes of its goroutines when it dies of SIGQUIT. Other lines are passed over.
func Go(text string) []Thread {
	var threads []Thread
	within := false
	function := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		head, file := goroutineHead().FindStringSubmatch(line), goroutineFile().FindStringSubmatch(line)
		switch {
		case head != nil:
			within = len(threads) < maxThreads
			if within {
				number, _ := strconv.Atoi(head[1])
				threads = append(threads, Thread{Number: number})
			}
			function = ""
		case line == "":
			within = false
		case file != nil && within && function != "":
			number, _ := strconv.Atoi(file[2])
			addFrame(threads, Frame{Function: function, File: file[1], Line: number})
			function = ""
		case within:
			function = goFunction(line)
		}
	}
	return threads
}

// goFunction is the function of a line such as "ddpbatch/mpi.AllReduce[...](0x1, {0x2, ...})"; "": there is none.
func goFunction(line string) string {
	if strings.HasPrefix(line, "created by ") {
		return ""
	}
	if at := strings.LastIndexByte(line, '('); at > 0 {
		return line[:at]
	}
	return ""
}

// packageOf is the import path of a function's package: what is before the first dot after the last slash.
func packageOf(function string) (path, name string) {
	slash := strings.LastIndexByte(strings.SplitN(function, "(", 2)[0], '/') + 1
	dot := strings.IndexByte(function[slash:], '.')
	if dot < 0 {
		return "", function
	}
	return function[:slash+dot], function[slash+dot+1:]
}

// groupPackage is the package whose calls wait for other ranks.
const groupPackage = "ddpbatch/mpi"

// goLibraries begin the import paths that have no line of the user's own: the standard library's, and those behind the group's calls.
var goLibraries = []string{
	"runtime", "internal", "sync", "os", "net", "syscall", "io", "context", "time", "bufio", "reflect", "encoding", "vendor", groupPackage,
}

func isGoLibrary(f Frame) bool {
	path, _ := packageOf(f.Function)
	for _, library := range goLibraries {
		if path == library || strings.HasPrefix(path, library+"/") {
			return true
		}
	}
	return path == "" // "panic"
}

// goCall is the group's call in which a goroutine waits; "": none.
func goCall(frames []Frame) (call string) {
	for _, f := range frames {
		if !isGoLibrary(f) {
			break
		}
		if path, name := packageOf(f.Function); path == groupPackage {
			call = plainName(name)
		}
	}
	return call
}

// plainName is a function's name without its receiver and its type's arguments.
func plainName(name string) string {
	name, _, _ = strings.Cut(name, "[...]")
	return name[strings.LastIndexByte(name, '.')+1:]
}

// ownModule begins the import paths of ddpbatch: libraries of a user's program, and the program itself where ddpbatch is the rank.
const ownModule = "ddpbatch/"

// ownGo is the innermost frame of the program's own; false: there is none.
func ownGo(frames []Frame) (own Frame, found bool) {
	isOurs := func(f Frame) bool { return strings.HasPrefix(f.Function, ownModule) }
	isRank := slices.ContainsFunc(frames, func(f Frame) bool { return strings.HasPrefix(f.Function, ownModule+"internal/") })
	for _, f := range frames {
		if !isGoLibrary(f) && (isRank || !isOurs(f)) {
			_, name := packageOf(f.Function)
			f.Function = plainName(name)
			return f, true
		}
	}
	return Frame{}, false
}
