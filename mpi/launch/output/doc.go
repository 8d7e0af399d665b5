// Package output carries what workers write to their log files, byte for byte, and to the agent's console, in whole lines.
//
// A [Mux] brings the output of one agent's workers together for one round. For each worker it makes two streams; each is a
// pipe whose one end is the worker's:
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
// A file gets every byte that was read, before the console does: a console that is slow, or gone, takes nothing from it. A
// disk that is full takes nothing from the console. On the console, and in the file of all ranks, no line is mixed with
// another. A stream ends in bounded time after End, even where a process that outlived the worker holds its pipe.
//
// # Limits
//
// A line longer than 64 KiB comes to the console as several. Of each stream the last 16 KiB are kept in memory, for a
// failure's report. A stream has one goroutine, from Begin until Done; a console that never takes what it is given holds it.
//
// # torchrun
//
// [ParseMap], [ParseRanks], [ParsePrefix] and [ParseFilters] read what torchrun's flags and variables say
// (torch.distributed.run), with two differences: a stream that is neither redirected nor teed goes to its file, too, and nothing is
// ever deleted.
package output
