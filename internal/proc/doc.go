// Package proc starts child processes that cannot outlive this one, and finds and kills the processes that they leave behind. It supports
// only Linux.
//
// Four mechanisms ensure that, each for what the previous one cannot reach:
//
//   - [Process]: a child leads its own process group. The group is signaled as a whole, and killed when its leader ends. The leader
//     is killed when this process ends, even by KILL.
//   - [SweepOrphans]: a process that left the group still has the cookie of the run in its environment.
//   - [Subreaper]: a process that cleared or overwrote its environment becomes a child of this process when its own parent ends, and
//     [SweepOrphans] finds it.
//   - [Guard]: if this process is killed, only another process can do the rest.
//
// One case remains: if this process is killed by KILL, a process that left its group and cleared its environment lives on. The guard knows
// groups and cookies, and orphans go to the next subreaper above, or to init. Slurm kills them with its step, by the step's cgroup. A
// subreaper that started the agents kills them by [SweepAdopted].
//
// No signal goes to a number that may belong to another process by now. A group is signaled while its leader has not been reaped, or by a
// member of the group. A process is signaled by a pidfd, after it was examined again. Kernels before Linux 5.3 have no pidfd, so that a
// short time between the check and the signal remains.
//
// The other functions report what processes do ([Handles], [Usages], [IsGo]) and why one was killed ([ReadMemory]).
//
// A process has one table of children, which cannot be divided. Therefore the list of children that are waited for belongs to the package
// and not to a value. Code that starts a child in a group of its own must do so through this package. Children that os/exec starts
// elsewhere stay in this process's group and are left alone.
package proc
