package ucx

import (
	"errors"
	"fmt"
	"runtime"

	"ddpbatch/internal/clib"
)

// library is libucp, loaded.
type library struct {
	version Version
	file    string // the file from which it was loaded
	fn      functions
	text    clib.Function // ucs_status_string, of libucs
	failed  clib.Function // UCX calls it when an endpoint fails
}

// functions are the functions of libucp that this package calls.
type functions struct {
	getVersion, configRead, configModify, configRelease, initVersion, cleanup clib.Function
	workerCreate, workerDestroy, workerAddress, releaseAddress, workerFD      clib.Function
	workerArm, workerProgress                                                 clib.Function
	endpointCreate, endpointClose, endpointFlush, endpointPrint               clib.Function
	send, probe, receive, checkStatus, requestFree                            clib.Function
	memoryMap, memoryUnmap                                                    clib.Function
}

// bySymbol maps names in C to the fields.
func (f *functions) bySymbol() map[string]*clib.Function {
	return map[string]*clib.Function{
		"ucp_get_version": &f.getVersion, "ucp_init_version": &f.initVersion, "ucp_cleanup": &f.cleanup,
		"ucp_config_read": &f.configRead, "ucp_config_modify": &f.configModify, "ucp_config_release": &f.configRelease,
		"ucp_worker_create": &f.workerCreate, "ucp_worker_destroy": &f.workerDestroy,
		"ucp_worker_get_address": &f.workerAddress, "ucp_worker_release_address": &f.releaseAddress,
		"ucp_worker_get_efd": &f.workerFD, "ucp_worker_arm": &f.workerArm, "ucp_worker_progress": &f.workerProgress,
		"ucp_ep_create": &f.endpointCreate, "ucp_ep_close_nbx": &f.endpointClose, "ucp_ep_flush_nbx": &f.endpointFlush,
		"ucp_ep_print_info": &f.endpointPrint,
		"ucp_tag_send_nbx":  &f.send, "ucp_tag_probe_nb": &f.probe, "ucp_tag_msg_recv_nbx": &f.receive,
		"ucp_request_check_status": &f.checkStatus, "ucp_request_free": &f.requestFree,
		"ucp_mem_map": &f.memoryMap, "ucp_mem_unmap": &f.memoryUnmap,
	}
}

// Library returns the version and the file of this machine's UCX.
func Library() (v Version, file string, err error) {
	lib, err := loadOnce()
	if err != nil {
		return v, "", err
	}
	return lib.version, lib.file, nil
}

const soname = "libucp.so.0"

// load opens libucp. C's environment has been set up before.
func load() (*library, error) {
	opened, err := clib.Open(soname)
	if errors.Is(err, clib.ErrNotFound) {
		return nil, fmt.Errorf("%w: install UCX (libucx0 in Debian, ucx in RHEL and Spack), or load its module", err)
	}
	if err != nil {
		return nil, err
	}
	lib := &library{}
	for name, f := range lib.fn.bySymbol() {
		if *f = opened.Symbol(name); *f == 0 {
			return nil, fmt.Errorf("%s has no %s: it is older than UCX %v, or is not UCX", soname, name, oldest)
		}
	}
	lib.file = lib.fn.getVersion.File()
	v := clib.New[Version]()
	clib.New[clib.Call]().Do(lib.fn.getVersion, clib.Address(&v.Major), clib.Address(&v.Minor), clib.Address(&v.Release))
	runtime.KeepAlive(v)
	if lib.version = *v; v.before(oldest) {
		return nil, fmt.Errorf("%s is UCX %v: install %v or newer", lib.file, v, oldest)
	}
	ucs, err := clib.Open("libucs.so.0")
	if err != nil {
		return nil, err
	}
	if lib.text = ucs.Symbol("ucs_status_string"); lib.text == 0 {
		return nil, errors.New("libucs.so.0 has no ucs_status_string: it is not UCX's")
	}
	lib.failed = clib.Callback(endpointFailed)
	return lib, nil
}

// statusError is the error of a call of UCX.
type statusError struct {
	doing  string
	status ucsStatus
	text   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s: %s (UCX status %d)", e.doing, e.text, e.status)
}

// error returns the error for a status of UCX, or nil for OK.
func (l *library) error(doing string, s ucsStatus) error {
	if s == statusOK {
		return nil
	}
	return &statusError{doing, s, clib.String(clib.New[clib.Call]().Do(l.text, uintptr(s)))}
}

// Version is the version of a library.
type Version struct{ Major, Minor, Release uint32 }

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Release) }

// oldest is the first version with the structs of layout.go.
var oldest = Version{Major: 1, Minor: 13}

// before reports whether v is older than w. It does not compare Release.
func (v Version) before(w Version) bool {
	return v.Major < w.Major || v.Major == w.Major && v.Minor < w.Minor
}
