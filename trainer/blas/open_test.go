package blas

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/blas"
)

func TestOpenKnowsGoByName(t *testing.T) {
	for _, name := range []string{"go", "gonum"} { // gonum is an earlier name
		lib, info, err := Open(Config{Library: name, Threads: 4})
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := lib.(*Go); !ok || info.Threads != 1 || info.Advice == "" {
			t.Errorf("%s: got %T, %+v", name, lib, info)
		}
		if got := info.String(); got != "go, 1 thread" {
			t.Errorf("%s: String is %q", name, got)
		}
	}
}

func TestAutoAlwaysOpens(t *testing.T) {
	lib, info, err := Open(Config{Library: Auto})
	if err != nil || lib == nil {
		t.Fatal(lib, err)
	}
	if (info.Name == InGo) != (info.Path == "") || info.Name == InGo && info.Advice == "" {
		t.Errorf("%+v does not fit together", info)
	}
}

func TestOpenRefusesLibrariesItCannotUse(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text.so")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[string]string{
		"":                                      "no library named",
		"/no/such/lib.so":                       "/no/such/lib.so: no such library; name another file",
		"libnosuchlibrary.so":                   "no such library",
		text:                                    "text.so",
		fake(t, "none.so", "-DNO_SGEMM"):        "has no sgemm_",
		fake(t, "wrong.so", "-DWRONG"):          "does not compute a matrix product",
		fake(t, "nameless.so", "-Dsgemm_=gemm"): "has no sgemm_",
	} {
		lib, _, err := Open(Config{Library: spec})
		if err == nil || lib != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want an error with %q", spec, lib, err, want)
		}
	}
}

// TestOpenFindsTheIntegersOfALibrary opens builds whose integers have 32 or 64 bits, with and without a suffix of function names.
func TestOpenFindsTheIntegersOfALibrary(t *testing.T) {
	for name, defines := range map[string][]string{
		"lp64":   nil,
		"ilp64":  {"-DINT=int64_t"},
		"suffix": {"-DINT=int64_t", "-DSUFFIX(name)=name##64_"},
	} {
		t.Run(name, func(t *testing.T) {
			path := fake(t, name+".so", append(defines, "-DOPENBLAS=64")...)
			lib, info, err := Open(Config{Library: path, Threads: 3})
			if err != nil {
				t.Fatal(err)
			}
			want := Info{Name: "OpenBLAS", Version: "fake, started with 3", Path: path, Threads: 3}
			if info.Name != want.Name || info.Version != want.Version || info.Path != want.Path ||
				info.Threads != want.Threads || info.Advice != "" {
				t.Errorf("got %+v, want %+v", info, want)
			}
			if got := info.String(); got != "OpenBLAS (fake, started with 3) from "+path+", 3 threads" {
				t.Errorf("String is %q", got)
			}
			newProduct(blas.Trans, blas.NoTrans, 7, 5, 3, 2, -1, 2).check(t, lib)
		})
	}
}

func TestOpenReportsFewerThreadsThanAskedFor(t *testing.T) {
	_, info, err := Open(Config{Library: fake(t, "serial.so", "-DOPENBLAS=1"), Threads: 4})
	if err != nil {
		t.Fatal(err)
	}
	if info.Threads != 1 || info.Advice != adviceSerial {
		t.Errorf("got %+v", info)
	}
}

// TestOpenReportsMKLsNameAndThreads tests only the calls, with a fake library, since MKL was not available.
func TestOpenReportsMKLsNameAndThreads(t *testing.T) {
	_, info, err := Open(Config{Library: fake(t, "mkl.so", "-DMKL"), Threads: 5})
	if err != nil {
		t.Fatal(err)
	}
	if info.Name != "MKL" || info.Version != "fake MKL" || info.Threads != 5 {
		t.Errorf("got %+v", info)
	}
}

func TestUnknownKindOpensByPathOnly(t *testing.T) {
	path := fake(t, "libopenblas.so.0")
	_, info, err := Open(Config{Library: path})
	if err != nil {
		t.Fatal(err)
	}
	if info.Name != "libopenblas.so.0" || info.Threads != 0 {
		t.Errorf("got %+v", info)
	}
	_, info, err = Open(Config{Library: Auto, Dirs: []string{filepath.Dir(path)}})
	if err != nil {
		t.Fatal(err)
	}
	if want := path + " is not OpenBLAS, BLIS or MKL"; !slices.Contains(info.PassedOver, want) {
		t.Errorf("passed over %q, want %q among them", info.PassedOver, want)
	}
}

// TestAutoSearchesDirs has an empty folder, one with a broken library, and one with a good library. Auto takes the good one.
func TestAutoSearchesDirs(t *testing.T) {
	wrong := fake(t, "libopenblas.so.0", "-DOPENBLAS=64", "-DWRONG")
	good := fake(t, "libopenblaso.so.0", "-DOPENBLAS=64")
	_, info, err := Open(Config{Library: Auto, Dirs: []string{t.TempDir(), filepath.Dir(wrong), filepath.Dir(good)}})
	if err != nil {
		t.Fatal(err)
	}
	if info.Path != good {
		t.Errorf("took %v, want %s", info, good)
	}
	if len(info.PassedOver) != 1 || !strings.Contains(info.PassedOver[0], wrong) ||
		!strings.Contains(info.PassedOver[0], errWrong.Error()) {
		t.Errorf("passed over %q", info.PassedOver)
	}
}
