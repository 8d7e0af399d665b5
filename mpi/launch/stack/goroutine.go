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

// Go reads the goroutines that a Go program writes when SIGQUIT ends it. Other lines are skipped.
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

// goFunction is the function of a line such as "ddpbatch/mpi.AllReduce[...](0x1, {0x2, ...})"; "": none.
func goFunction(line string) string {
	if strings.HasPrefix(line, "created by ") {
		return ""
	}
	if at := strings.LastIndexByte(line, '('); at > 0 {
		return line[:at]
	}
	return ""
}

// packageOf returns the import path of a function's package, which is everything before the first dot after the last slash, and the
// name after it.
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

// goLibraries are prefixes of the import paths of packages that are not the user's: the standard library's, and those below the
// group's calls.
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

// goCall is the call of the group in which a goroutine waits; "": none.
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

// plainName is a function's name without its receiver and its type arguments.
func plainName(name string) string {
	name, _, _ = strings.Cut(name, "[...]")
	return name[strings.LastIndexByte(name, '.')+1:]
}

// ownModule is the prefix of ddpbatch's import paths: libraries of a user's program, or the program itself if ddpbatch is the rank.
const ownModule = "ddpbatch/"

// ownGo returns the innermost frame of the program's own code, and whether there is one.
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
