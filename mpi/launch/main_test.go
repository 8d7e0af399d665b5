package launch

import (
	"context"
	"os"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"ddpbatch/internal/proc"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == proc.GuardCommand {
		if _, err := proc.ServeGuard(context.Background(), os.Args[2:], os.Stdin); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(workerSwitch) != "" {
		workerMain() // this process is a worker, or an agent, of a test
	}
	syscall.Umask(0o022) // a folder of runs that the group may write to is refused
	goleak.VerifyTestMain(m)
}
