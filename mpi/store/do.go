package store

import (
	"context"
	"fmt"
	"time"
)

// do sends a request and returns what the server makes of it. When ctx ends
// first, the server is told, and has cancelGrace to say what is missing, or
// that the request was carried out after all.
func (c *Client) do(ctx context.Context, req *request) (result, error) {
	if err := req.check(); err != nil {
		return nil, fmt.Errorf("%v: %w", req, err)
	}
	if ctx.Err() != nil {
		return nil, unsent(ctx, req)
	}
	answer, err := c.expect(req)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", req, err)
	}
	defer c.forget(req.id)
	select {
	case c.out <- req.frame():
	case <-c.done:
		return nil, fmt.Errorf("%v: %w", req, c.Err())
	case <-ctx.Done():
		return nil, unsent(ctx, req)
	}
	select {
	case rep := <-answer:
		return rep.outcome(ctx, req)
	case <-c.done:
		return c.lastWord(ctx, req, answer)
	case <-ctx.Done():
	}

	grace := time.NewTimer(cancelGrace)
	defer grace.Stop()
	cancel := &request{id: req.id, op: opCancel}
	select {
	case c.out <- cancel.frame():
	case <-c.done:
		return c.lastWord(ctx, req, answer)
	case <-grace.C:
		return nil, unanswered(ctx, req)
	}
	select {
	case rep := <-answer:
		return rep.outcome(ctx, req)
	case <-c.done:
		return c.lastWord(ctx, req, answer)
	case <-grace.C:
		return nil, unanswered(ctx, req)
	}
}

// lastWord is the reply that came before the connection ended, if one did.
func (c *Client) lastWord(ctx context.Context, req *request, answer <-chan reply) (result, error) {
	select {
	case rep := <-answer:
		return rep.outcome(ctx, req)
	default:
		return nil, fmt.Errorf("%v: %w", req, c.Err())
	}
}

// unsent is the error of a request that did not leave before its context ended.
func unsent(ctx context.Context, req *request) error {
	if keys := req.awaited(); keys != nil {
		return &WaitError{Keys: keys, Err: ctx.Err()}
	}
	return fmt.Errorf("%v: %w", req, ctx.Err())
}

// unanswered is the error of a request that was sent, but of which nothing was
// heard by the end of its context and cancelGrace.
func unanswered(ctx context.Context, req *request) error {
	if keys := req.awaited(); keys != nil {
		return &WaitError{Keys: keys, Err: fmt.Errorf("%w, and the server does not answer", ctx.Err())}
	}
	return fmt.Errorf("%v: %w, and the server does not answer: whether it was done is not known", req, ctx.Err())
}
