package ucx

import "ddpbatch/internal/clib"

// These are the structs of ucp.h in memory, on machines with 64-bit pointers. The first field of a struct says which other fields
// the library reads. New fields are only added at the end, and each struct has room for them. An address refers to memory on the
// heap or outside of Go's, which the code that uses it keeps alive.

type contextParams struct { // ucp_params_t
	fields          uint64
	features        uint64
	requestSize     uint64
	requestInit     uint64
	requestCleanup  uint64
	tagSenderMask   uint64
	workersShared   int32
	_               int32
	estimatedPeers  uint64
	estimatedNearby uint64
	name            uint64
	_               [8]uint64
}

const (
	contextFeatures       = 1 << 0
	contextEstimatedPeers = 1 << 6

	featureTag    = 1 << 0
	featureWakeup = 1 << 4
)

type workerParams struct { // ucp_worker_params_t
	fields     uint64
	threadMode uint32
	_          uint32
	cores      [128]byte
	events     uint32
	_          uint32
	userData   uint64
	eventFD    int32
	_          int32
	flags      uint64
	name       uint64
	alignment  uint64
	clientID   uint64
	_          [8]uint64
}

const (
	workerThreadMode = 1 << 0

	threadsSerialized = 1 // one thread at a time
)

type endpointParams struct { // ucp_ep_params_t
	fields        uint64
	address       uintptr
	errorMode     uint32
	_             uint32
	errorCallback clib.Function
	errorArgument uint64
	userData      uint64
	flags         uint32
	_             uint32
	remoteAddress [2]uint64
	request       uint64
	name          uint64
	localAddress  [2]uint64
	_             [8]uint64
}

const (
	endpointAddress   = 1 << 0
	endpointErrorMode = 1 << 1
	endpointOnError   = 1 << 2 // without a callback, UCX ends the process when a peer is gone

	errorsOfPeers = 1 // the end of a peer is an error of the messages to it
)

type requestParams struct { // ucp_request_param_t
	fields     uint32
	flags      uint32
	request    uint64
	callback   uint64
	datatype   uint64
	userData   uint64
	reply      uint64
	memoryType uint32
	_          uint32
	received   uint64
	memory     uintptr // ucp_mem_h
	_          [8]uint64
}

const (
	requestFlags  = 1 << 4
	requestMemory = 1 << 8

	closeForced = 1 << 0
)

type tagInfo struct { // ucp_tag_recv_info_t
	tag    uint64
	length uint64
}

type mapParams struct { // ucp_mem_map_params_t
	fields     uint64
	address    uintptr
	length     uint64
	flags      uint32
	protection uint32
	memoryType uint32
	_          uint32
	_          [8]uint64
}

const (
	mapAddress = 1 << 0
	mapLength  = 1 << 1
)

// ucsStatus is ucs_status_t, which has one byte.
type ucsStatus int8

const (
	statusOK         ucsStatus = 0
	statusBusy       ucsStatus = -15
	statusInProgress ucsStatus = 1
	lastStatus       ucsStatus = -100
)

// started decodes a ucs_status_ptr_t: a request that is running or, if request is 0, how the call has ended.
func started(p uintptr) (request uintptr, ended ucsStatus) {
	if int64(p) < 0 && int64(p) >= int64(lastStatus) {
		return 0, ucsStatus(int64(p))
	}
	return p, statusOK
}
