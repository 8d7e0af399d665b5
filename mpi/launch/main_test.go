package launch

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerSwitch) != "" {
		workerMain() // this process is a worker, or an agent, of a test
	}
	goleak.VerifyTestMain(m)
}
