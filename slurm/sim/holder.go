package sim

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"ddpbatch/internal/proc"
)

// holder is a process that does nothing but be in some namespaces, until its input ends.
type holder struct {
	process *proc.Process
	input   *os.File
}

// hold starts a holder by words, which make or enter namespaces, and waits until its script has set them up.
func hold(ctx context.Context, words []string, script string) (*holder, error) {
	in, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, output, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, input.Close())
	}
	defer out.Close()
	words = append(words[:len(words):len(words)], "sh", "-c", "{ "+script+"\n} 2>&1 && echo ready && read -r _")
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, output, output
	p, err := proc.Start(cmd)
	output.Close()
	if err != nil {
		return nil, errors.Join(err, input.Close())
	}
	h := &holder{process: p, input: input}
	if err := h.ready(ctx, out); err != nil {
		h.release()
		return nil, err
	}
	return h, nil
}

// ready reads what a holder says until it is ready.
func (h *holder) ready(ctx context.Context, out *os.File) error {
	if err := out.SetReadDeadline(time.Now().Add(setUp)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { out.SetReadDeadline(time.Now()) })()
	var said []string
	lines := bufio.NewScanner(io.LimitReader(out, 64<<10))
	for lines.Scan() {
		if lines.Text() == "ready" {
			return nil
		}
		said = append(said, lines.Text())
	}
	return errors.Join(ctx.Err(), lines.Err(), errors.New(strings.Join(append(said, "it did not begin"), "; ")))
}

func (h *holder) release() {
	h.input.Close()
	<-h.process.Done()
}
