package main

import (
	"os"
	"os/signal"
	"syscall"
)

// holdSignals keeps a warning from being lost that comes before an agent knows what each signal means: until then files on a shared file
// system are read. Go takes no note of USR1 and USR2 that nobody asks for; for what main asks for, see listen. release hands on what came
// meanwhile; nil of other commands.
func holdSignals(args []string) (release func()) {
	if len(args) < 2 || args[1] != "run" {
		return nil
	}
	held := make(chan os.Signal, 8)
	signal.Notify(held, syscall.SIGUSR1, syscall.SIGUSR2)
	return func() {
		signal.Stop(held)
		for {
			select {
			case s := <-held:
				syscall.Kill(os.Getpid(), s.(syscall.Signal)) // as if it came now
			default:
				return
			}
		}
	}
}
