package auth

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// Within runs talk, which reads and writes conn, and makes it end with ctx, or
// after limit where ctx has no deadline. When it succeeds, conn has no deadline left.
func Within(ctx context.Context, conn net.Conn, limit time.Duration, talk func() error) error {
	deadline, ok := ctx.Deadline()
	if !ok {
		deadline = time.Now().Add(limit)
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return fmt.Errorf("set a deadline: %w", err)
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		conn.SetDeadline(time.Unix(1, 0)) // in the past: whoever reads or writes returns
		close(interrupted)
	})
	err := talk()
	if !stop() {
		<-interrupted // or it would set its deadline after ours is cleared
		return context.Cause(ctx)
	}
	switch {
	case err == nil:
		return conn.SetDeadline(time.Time{})
	case !errors.Is(err, os.ErrDeadlineExceeded):
		return err
	case ok: // the connection's clock was a moment ahead of the context's
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return fmt.Errorf("no answer within %v: %w", limit, err)
}
