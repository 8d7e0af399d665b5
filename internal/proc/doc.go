// Package proc starts child processes that cannot outlive this one, and finds and ends what they leave behind. Linux only.
//
// Four things hold that, each for what the one before it cannot reach:
//
//   - [Process]: a child leads a process group of its own. The group is signalled as one, and killed when its leader ends. The
//     leader dies with this process, even by KILL.
//   - [SweepOrphans]: who left the group still carries the cookie of the run in its environment.
//   - [Subreaper]: who cleared or overwrote that becomes a child of this process when its own parent ends, and [SweepOrphans] finds it.
//   - [Guard]: when this process is killed, nobody is left to do so but another process.
//
// One thing is out of reach: when this process is killed by KILL, who left its group and cleared its environment lives on. The guard
// knows groups and cookies, and orphans go to the next subreaper above, or to init. Slurm ends those with its step, by its cgroup; a
// subreaper that started the agents does so by [SweepAdopted].
//
// Nothing is signalled by a number that may have become another's: a group is signalled while its leader is not
// reaped, or by a member of it; a process by a pidfd, after it was looked at again (where the kernel has none, before Linux 5.3, the time
// between a look and the signal remains).
//
// The rest tells what processes do: [Handles], [Usages], [IsGo], and why one was killed: [ReadMemory].
//
// A process has one table of children, which nothing in it can divide: that is why the list of those that are waited
// for belongs to the package, and to no value in it. Whoever starts a child in a group of its own does so here; children
// that os/exec starts elsewhere stay in this process's group, and are left alone.
package proc
