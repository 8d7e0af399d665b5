package blas

import "strconv"

// Auto and InGo are the values of Config.Library that name no file.
const (
	Auto = "auto" // the first library of the site that works, and this program's own products where there is none
	InGo = "go"   // this program's own products

	formerInGo = "gonum" // what InGo was while its products were gonum's: job files may still say so
)

// Config says which library to open.
type Config struct {
	// Library is Auto, InGo, or what the loader should load: a path, or a name such as libopenblas.so.0.
	Library string
	// Threads is the number of cores that one product uses; below 1 means 1.
	Threads int
	// Dirs are folders that Auto looks into before it asks the system's loader, which knows LD_LIBRARY_PATH and
	// ld.so.cache: that of a conda environment ($CONDA_PREFIX/lib), for one.
	Dirs []string
}

// Info says what was opened, for people.
type Info struct {
	// Name is OpenBLAS, BLIS, MKL or go, or the name of the file where a library does not say what it is.
	Name string
	// Version is the library's own text on version and configuration; empty where it gives none.
	Version string
	// Path is the file, without links; empty for go.
	Path string
	// Threads is the number of cores a product uses, by the library's word; 0 where it gives none.
	Threads int
	// Advice says how to get faster products; empty where there is nothing to say.
	Advice string
	// PassedOver has a line for every library that Auto found, and why it did not take it.
	PassedOver []string
}

// String is one line: name, version, file and threads.
func (i Info) String() string {
	text := i.Name
	if i.Version != "" {
		text += " (" + i.Version + ")"
	}
	if i.Path != "" {
		text += " from " + i.Path
	}
	switch i.Threads {
	case 0:
		return text + ", threads as it likes"
	case 1:
		return text + ", 1 thread"
	}
	return text + ", " + strconv.Itoa(i.Threads) + " threads"
}
