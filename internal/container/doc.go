// Package container writes the command lines by which container runtimes start the workers of a run.
//
//	argv, env, err := config.Command(container.Worker{Argv: worker, Env: environ, Dir: dir, Binds: binds})
//
// The agent runs outside the container and starts argv, with env, in place of the worker. So the image needs neither a Slurm client nor
// ddpbatch. Functions here do not start processes, and read only the files that their names say.
//
// # What all runtimes have in common
//
//   - The network, the process ids and /dev/shm are the node's. Ranks find each other's ports, NCCL and PyTorch share memory by files in
//     /dev/shm, and ddpbatch's own ranks by /proc/PID/fd.
//   - The binds are the files and folders whose paths the worker gets: its working directory, the run directory, and so on, each at its own
//     path.
//   - The worker gets its variables, except those that say where things are on the host (see [IsHostVariable]). Values are never on a
//     command line, which all users of a node can read, unless the job file itself gives such a variable a value.
//   - An image's entry point is not run.
//
// # Where they differ
//
// Podman and Docker start the worker from another process, so the agent has to find it (proc.Contained). The others exec the
// worker, or remain its parent. Sources: podman-run(1), docker run's reference, apptainer-exec(1), enroot's start.md, ch-run(1).
package container
