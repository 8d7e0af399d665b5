package blame

import (
	"regexp"
	"sync"
)

// place is where a row's message counts. Each counts in the error that a rank reports.
type place int

const (
	inError     place = iota // only there
	atEnd                    // also in the last few lines, if the rank reports no error
	besideGPU                // also in any of the last lines, if the rank reports no error, or a vague one about GPUs
	besideChild              // also in any of the last lines, if the rank reports no error, or only the end of a child process
)

// row is a line of the table.
type row struct {
	KnownCause
	in              place
	vague           place // which rows may be more specific, if the message only says that something failed; 0: none
	pattern         *regexp.Regexp
	containerAdvice string // the advice for a rank in a container; "": the same
	simulateAdvice  string // the advice for a rank of simulate or rehearse; "": the same
}

// Names of causes that code refers to.
const (
	missingModule = "missing Python module"
	hostMemory    = "host memory"
)

// Sentences of advice that several rows share.
const (
	sparesNode  = "another attempt leaves the node out if it can; report the node to the site's administrators"
	changesCode = "change the program: the same failure comes again at the same place"
)

// table has a row for each known message. The first row that matches counts, so more specific rows come first. Each pattern matches
// what the program prints; testdata/causes.txtar names the sources. A row is final if the failure comes again on any node until a
// person changes something, and a node's if no other program would work on that node either.
var table = sync.OnceValue(func() []row {
	return []row{
		// Nodes: GPUs, their driver, links.
		infra("GPU memory error", node, besideGPU,
			`uncorrectable ECC error encountered`,
			sparesNode),
		infra("GPU lost", node, besideGPU,
			`GPU has fallen off the bus|GPU is lost\.|Unable to determine the device handle for GPU`,
			sparesNode),
		infra("NVLink error", node, besideGPU,
			`uncorrectable NVLink error|Invalid access of peer GPU memory over nvlink or a hardware error`,
			sparesNode),
		// Faults of a GPU itself. Others, such as 13, 31, 43 and 45, are faults of the program (NVIDIA's catalog of Xids).
		infra("Xid of a GPU", node, besideGPU,
			`NVRM: Xid \([^)]*\): (?:48|62|64|74|79|94|95|119|120|140)\b`,
			sparesNode),
		infra("InfiniBand card", node, besideGPU,
			`NET/IB : \S+ Got async (?:fatal |error )*event ?: (?:port error|device fatal|local catastrophic error)`,
			sparesNode),
		infra("GPU driver", node, atEnd,
			`Driver/library version mismatch|couldn't communicate with the NVIDIA driver|`+
				`Failed to initialize NVML: |CUDA error: system not yet initialized|CUDA error: unknown error|`+
				`^RuntimeError: .*CUDA unknown error`,
			sparesNode),
		infra("GPU in use", 0, inError,
			`CUDA-capable device\(s\) is/are busy or unavailable`,
			"another process holds the GPU: another rank (use LOCAL_RANK), or another job; or it is broken"),

		// File systems.
		infra("stale file handle", 0, inError,
			`Stale (?:NFS )?file handle`,
			"another node has removed or replaced the file, or its network file system has moved under the node's mount"),
		infra("mount gone", node, inError,
			`(?:Transport endpoint is not connected|Cannot send after transport endpoint shutdown): '/`,
			"a file system is not mounted any more, or its servers have shut out the node: another attempt leaves the node out if it can"),
		infra("quota", final, inError,
			`Disk quota exceeded`,
			"remove files, or ask for more quota (quota -s, lfs quota): blocks and files have separate quotas"),
		program("too many open files", 0, inError,
			`Too many open files|received 0 items of ancdata`,
			"raise the limit (ulimit -n in setup.script), or have torch.multiprocessing share by file_system"),
		infra("/dev/shm full", 0, besideChild,
			`insufficient shared memory \(shm\)|killed by signal: Bus error|(?:/dev/shm/|</torch_).*No space left on device|`+
				`unable to (?:open shared memory object|write to file|mmap \d+ bytes from file) </torch_`,
			"ask for more memory (slurm.mem) or, in a container, for a larger /dev/shm; or use fewer or smaller data workers"),
		infra("file system full", 0, inError,
			`No space left on device`,
			"make room (df -h, df -i) on the file system that the message names"),
		infra("read-only file system", 0, inError,
			`Read-only file system`,
			"write elsewhere, or tell the site's administrators if it should be writable"),
		infra("input/output error", 0, inError,
			`(?:Remote I/O|Input/output) error`,
			"a disk or a file server failed: tell the site's administrators if it comes again"),

		// Python, and what is installed.
		program(missingModule, final, atEnd,
			`(?:^ModuleNotFoundError: |^ImportError: |python[\d.]*: |\(ModuleNotFoundError: )No module named '?([\w.]+)`,
			"{python} has no module {1}: name the environment that has it (setup.venv, setup.conda, setup.modules, or its "+
				"python3 in launch.command), or install it").
			simulated("{python} has no module {1}: activate the environment in this shell, or name its python3 in launch.command").
			inContainer("the image's Python has no module {1}: install it in the image, or mount a folder that has it (container.mounts)"),
		program("missing name in a module", final, inError,
			`^ImportError: cannot import name '?(\w+)`,
			"another version of the package than the program wants is installed, or another file has its name"),
		program("missing library", final, inError,
			`error while loading shared libraries|^ImportError: .*cannot open shared object file|`+
				`(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found|^ImportError: .*undefined symbol: `,
			"load the module that has the library (setup.modules), or build for the nodes' system").
			simulated("load the module that has the library in this shell, or build for this machine").
			inContainer("the image lacks the library: add it to the image, or mount it (container.mounts)"),
		program("missing command", final, atEnd,
			`: (?:line )?\d+: (\S+): (?:command )?not found$`,
			"{1} is not in the workers' PATH: load its module (setup.modules), or write its path").
			simulated("{1} is not in this shell's PATH: load its module in this shell, or write its path").
			inContainer("the image has no {1} in its PATH: add it to the image, or write its path"),
		program("missing script", final, atEnd,
			`can't open file '([^']*)': \[Errno 2\]`,
			"relative paths start at workdir: does {1} exist there, also on the nodes?"),
		program("wrong arguments", final, atEnd,
			`^[^:]+: error: (?:unrecognized arguments|the following arguments are required|argument \S+: |ambiguous option)`,
			"correct the arguments in launch.command"),
		// Programs in containers, as runtimes report them. Without a loader the kernel says that the program does not exist.
		program("missing program in the image", final, atEnd,
			`(?:can't execve\(2\): |container process: exec: ")([^\s/":]+)(?:: No such file|": executable file not found in \$PATH)`,
			"the image has no {1} in its PATH, or it lacks the loader that the program needs"),
		program("missing loader of ddpbatch in the image", final, atEnd, // ddpbatch is mounted, with the run directory
			`(?:can't execve\(2\): |^exec )\S*/bin/ddpbatch: [Nn]o such file`,
			"the image lacks ddpbatch's loader (/lib64/ld-linux-x86-64.so.2): build ddpbatch with -tags static"),
		program("missing program or interpreter in the image", final, atEnd,
			`(?:can't execve\(2\): |container process: exec: "|^exec )([^\s":]*/[^\s":]+)(?:: [Nn]o such file|": stat \S+: no such file)`,
			"the image has no {1}, or it lacks what {1} needs: the interpreter after #! in a script's first line, or a program's loader"),
		program("missing mount point in the image", final, atEnd,
			`can't bind: destination not found: (\S+)`,
			"make {1}; charliecloud needs dev, proc, sys, tmp, etc/passwd, etc/group and a folder for each mount in the image"),
		program("image without a registry", final, atEnd,
			`short-name "([^"]*)" did not resolve to an alias`,
			"podman knows no registry for {1}: write the whole name, such as docker.io/library/debian:12"),
		infra("no Docker daemon", 0, atEnd,
			`Cannot connect to the Docker daemon|failed to connect to the docker API`,
			"the daemon does not run on this node (docker info), or DOCKER_HOST is wrong; podman and apptainer need no daemon"),
		program("missing image", 0, atEnd,
			`^Error: (\S+): image not known$`,
			"each node must have the image: podman pull {1}, or container.args = [\"--pull=missing\"]; a folder is written as ./FOLDER"),
		program("syntax error", final, inError,
			`^(?:SyntaxError|IndentationError|TabError): `,
			changesCode),
		program("GPU too new or too old for the program", final, inError,
			`no kernel image is available for execution on the device`,
			"install a build for this kind of GPU (torch.cuda.get_arch_list()), or ask for GPUs that it supports (slurm.constraint)"),
		program("GPU driver too old for the program", final, inError,
			`CUDA driver version is insufficient for CUDA runtime version|^\w+: .*NVIDIA driver on your system is too old`,
			"install a build for an older CUDA, or ask for nodes with a newer driver"),
		program("PyTorch without CUDA", final, inError,
			`Torch not compiled with CUDA enabled`,
			"install a build of PyTorch with CUDA"),
		program("GPU number", final, inError,
			`CUDA error: invalid device ordinal`,
			"a rank uses a GPU that it does not see: use LOCAL_RANK, and as many ranks on a node as it has GPUs (launch.nproc_per_node)"),
		program("one GPU for two ranks", final, besideGPU,
			`Duplicate GPU detected`,
			"call torch.cuda.set_device(LOCAL_RANK) before the first collective, and start no more ranks on a node than it has GPUs"),
		infra("no GPU", 0, inError,
			`No CUDA GPUs are available|no CUDA-capable device is detected`,
			"ask for GPUs (slurm.gpus_per_node); if the job has, run nvidia-smi on that node"),

		// What the program does.
		program("other weights than the model's", final, inError,
			`Error\(s\) in loading state_dict for`,
			"load a checkpoint of the same model, or change the model"),
		program("weights with code in them", final, inError,
			`Weights only load failed`,
			"load the file with weights_only=False if you trust it, or allow its classes (torch.serialization.add_safe_globals)"),
		program("damaged checkpoint", 0, inError,
			`PytorchStreamReader failed`,
			"a file was cut short while it was written: resume from the one before it"),
		program("unused parameters", final, inError,
			`Expected to have finished reduction in the prior iteration`,
			"let all parameters take part in the loss, or pass find_unused_parameters=True to DistributedDataParallel"),
		program("models that differ", final, inError,
			`DDP expects same model across all ranks`,
			"build the same model on every rank"),
		program("tensors on different devices", final, inError,
			`Expected all tensors to be on the same device`,
			changesCode),
		program("different collectives", 0, inError,
			`Detected mismatch between collectives on ranks`,
			"ranks call different collectives, or in another order: look for code that only some ranks run"),
		program("training diverged", 0, atEnd, // the built-in trainer's; it says itself which key to change
			`: training diverged at step `,
			"a resume without a change diverges again; pass the change to resume with --set, or submit a changed job"),
		program("not a number", 0, atEnd,
			`Loss is (?:nan|-?inf), stopping training|Detected nan and/or inf values in|found NaN in local forward loss|`+
				"^ValueError: The loss returned in `training_step` is (?:tensor\\()?(?:nan|-?inf)|"+
				`returned nan values in its \d+th output`,
			"lower the learning rate, clip gradients, or look at the batch; a resume before that step may come to it again"),
		program("GPU memory", 0, inError,
			`(?:CUDA|HIP) out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED`,
			"use a smaller batch, activation checkpointing, or more GPUs; on a shared GPU look for who else holds memory (nvidia-smi)"),
		program(hostMemory, 0, atEnd,
			`^MemoryError|can't allocate memory|Cannot allocate memory|bad_alloc|oom[_-]kill event|killed by signal: Killed|`+
				`: line \d+: +\d+ Killed `,
			"ask for more memory (slurm.mem), or use fewer data workers"),
		program("fault in a GPU kernel", vagueGPU, besideGPU,
			`an illegal (?:memory access|instruction) was encountered|device-side assert triggered|CUDA error: misaligned address|`+
				`CUDA error: unspecified launch failure|Memory access fault by GPU node|NVRM: Xid \([^)]*\): (?:13|31|43|45)\b`,
			"run once with CUDA_LAUNCH_BLOCKING=1 to see where: an index out of range is the usual reason"),
		program("data worker ended", vagueChild, inError,
			`^RuntimeError: DataLoader worker .* exited unexpectedly`,
			"a worker of the data loader says more in the rank's log; num_workers=0 shows its exception"),
		program("segmentation fault", 0, atEnd,
			`^Fatal Python error: (?:Segmentation fault|Aborted|Illegal instruction)|^Segmentation fault`,
			"a library crashed: PYTHONFAULTHANDLER=1 shows where, and versions that do not fit each other are the usual reason"),
		infra("too many processes", 0, atEnd,
			`can't start new thread|pthread_create failed|fork: (?:retry: )?Resource temporarily unavailable`,
			"use fewer threads (OMP_NUM_THREADS) and data workers; ulimit -u counts those of all your jobs on the node"),
		program("no permission", 0, inError,
			`^PermissionError: \[Errno 13\]`,
			"look at the owner and mode of the file that the message names, as the node sees it"),
		program("missing file", 0, inError,
			`^FileNotFoundError: \[Errno 2\]`,
			"does the file that the message names exist on the node? relative paths start at workdir"),
		program("no Weights & Biases key", final, inError,
			`api_key not configured \(no-tty\)`,
			"run wandb login once on the login node, set WANDB_API_KEY, or WANDB_MODE=offline (setup.env)"),
		program("no access to a model", final, inError,
			`Cannot access gated repo for url|401 Client Error: Unauthorized for url`,
			"accept the model's terms, and log in (huggingface-cli login, or HF_TOKEN), or fetch it on the login node"),

		// Other nodes, and what is between.
		infra("no network", 0, inError,
			`Temporary failure in name resolution|Name or service not known|couldn't connect to 'https://huggingface\.co'|`+
				`Network is unreachable`,
			"at many sites, nodes cannot reach the Internet: fetch what is needed on the login node, and set HF_HUB_OFFLINE=1"),
		infra("port in use", 0, inError,
			`[Aa]ddress already in use|EADDRINUSE`,
			"another process listens there: use MASTER_PORT, which differs from attempt to attempt"),
		infra("InfiniBand link", 0, besideGPU,
			`NET/IB : Got completion .*(?:IBV_WC_RETRY_EXC_ERR|error 12\b|status=12\b)|transport retry counter exceeded`,
			"the link between two nodes fails: tell the administrators which (the message names the peer)"),
		program("collective timed out", vagueGPU, besideGPU,
			`Watchdog caught collective operation timeout|Timed out waiting \d+ms for (?:recv|send) operation|`+
				`Application timeout caused pair closure`,
			"a rank did not come: it is stuck, slower than the time-out, or calls another collective (launch.hang "+
				"shows where ranks stand)"),
		infra("NCCL lost a peer", vagueGPU, besideGPU,
			`ncclRemoteError|remote process exited or there was a network error`,
			"a rank or the network went away; NCCL_DEBUG=WARN in setup.env says more"),
		infra("NCCL call", vagueGPU, besideGPU,
			`ncclSystemError|ncclUnhandledCudaError|unhandled (?:system|cuda) error`,
			"NCCL_DEBUG=WARN in setup.env says what failed"),
		program("ranks did not meet", 0, inError,
			`client socket has timed out|^torch\.distributed\.DistStoreError: |Timed out after \d+ seconds waiting for clients`,
			"not all ranks came in time: look for one that failed or started late, and use MASTER_ADDR and MASTER_PORT as they are set"),
		infra("ended through Slurm", 0, atEnd,
			`\*\*\* (?:JOB|STEP|StepId=)\S* .*CANCELLED AT \S+`,
			"a limit, a user or an administrator ended it: sacct -j JOB -o JobID,State%30 shows who"),
	}
})

// marks are properties of a row besides its class.
type marks int

const (
	final marks = 1 << iota
	node
	vagueGPU   // NCCL or the driver has usually printed more before
	vagueChild // a child process has
)

func program(name string, m marks, in place, pattern, advice string) row {
	return newRow(Program, name, m, in, pattern, advice)
}

func infra(name string, m marks, in place, pattern, advice string) row {
	return newRow(Infrastructure, name, m, in, pattern, advice)
}

func newRow(class Class, name string, m marks, in place, pattern, advice string) row {
	r := row{
		KnownCause: KnownCause{Name: name, Class: class, Final: m&final != 0, Node: m&node != 0, Advice: advice},
		in:         in,
		pattern:    regexp.MustCompile(pattern),
	}
	switch {
	case m&vagueGPU != 0:
		r.vague = besideGPU
	case m&vagueChild != 0:
		r.vague = besideChild
	}
	return r
}

// inContainer gives r other advice for ranks in a container, which do not see what [setup] loads on the node.
func (r row) inContainer(advice string) row {
	r.containerAdvice = advice
	return r
}

// simulated gives r other advice for ranks on pretend nodes, which run in the user's shell's environment, without [setup].
func (r row) simulated(advice string) row {
	r.simulateAdvice = advice
	return r
}
