// Package output copies what workers write to their log files, byte for byte, and to the agent's console, in whole lines.
//
// A [Mux] brings together the output of one agent's workers for one round. For each worker it makes two streams. Each is a pipe,
// one end of which is the worker's:
//
//	mux, err := output.NewMux(config, output.To{Stdout: os.Stdout, Stderr: os.Stderr}, log)
//	defer mux.Close()
//	out, errs, err := mux.Worker(output.Worker{Host: "n1", Rank: 3}, "n1.3.out", "n1.3.err")
//	cmd.Stdout, cmd.Stderr = out.Pipe(), errs.Pipe()
//	err = cmd.Start()          // on an error: out.Drop(), errs.Drop()
//	out.Begin(); errs.Begin()
//	...                        // the worker has ended
//	out.End(); errs.End()
//	<-out.Done(); <-errs.Done()
//
// # Guarantees
//
// A file gets every byte that was read before the console gets it: a console that is slow or broken does not cut the file, and a
// full disk does not cut the console. On the console, and in the file of all ranks, lines of different workers are never mixed. A
// stream ends in bounded time after End, even if a process that outlived the worker holds its pipe.
//
// # Limits
//
// A line longer than 64 KiB comes to the console as several lines. The last 16 KiB of each stream are kept in memory, for a
// failure's report. A stream has one goroutine, from Begin until Done; a console that never accepts what is written blocks it.
//
// # torchrun
//
// [ParseMap], [ParseRanks], [ParsePrefix] and [ParseFilters] parse the values of torchrun's flags and variables
// (torch.distributed.run), with two differences: a stream that is neither redirected nor teed goes to its file, too, and files are
// never deleted.
package output
