package shm

import (
	"bufio"
	"encoding/gob"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"

	"go.uber.org/goleak"
)

// rankVariable makes the test binary run as one rank of a group of processes.
const rankVariable = "SHM_TEST_RANK"

func TestMain(m *testing.M) {
	if rank := os.Getenv(rankVariable); rank != "" {
		if err := rankMain(rank); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// order is what the parent tells a rank process to do.
type order struct {
	Handles [2][][HandleSize]byte // the first order
	Job     string
	Bytes   int
	Rounds  int
	Shared  bool // buffers are registered
}

// report is what a rank process answers.
type report struct {
	Handles [2][HandleSize]byte // the first report
	Err     string
}

// rankMain is a rank process: its handles, those of all, and then jobs.
func rankMain(place string) error {
	var rank, size int
	if _, err := fmt.Sscanf(place, "%d/%d", &rank, &size); err != nil {
		return err
	}
	m, err := newMember(rank, size)
	if err != nil {
		return err
	}
	m.w.yield, m.w.spins = schedYield, spinsFor(size)
	in, out := gob.NewDecoder(bufio.NewReader(os.Stdin)), gob.NewEncoder(os.Stdout)
	if err := out.Encode(report{Handles: [2][HandleSize]byte{m.area.Handle().Encode(), m.region.Handle().Encode()}}); err != nil {
		return err
	}
	for first := true; ; first = false {
		var o order
		if err := in.Decode(&o); err != nil {
			return nil // the parent has ended
		}
		var r report
		if first {
			err = m.join(o.Handles)
		} else {
			err = m.run(o)
		}
		if err != nil {
			r.Err = fmt.Sprintf("rank %d: %v", rank, err)
		}
		if err := out.Encode(r); err != nil {
			return err
		}
	}
}

// spinsFor gives the processor away at once where ranks share one.
func spinsFor(size int) int {
	if size <= runtime.NumCPU() {
		return 10000
	}
	return 20
}

// processes is a group whose ranks from 1 on are processes; rank 0 is this one.
type processes struct {
	*member
	cmds []*exec.Cmd
	in   []*gob.Encoder
	out  []*gob.Decoder
}

func startProcesses(t testing.TB, size int) *processes {
	t.Helper()
	m, err := newMember(0, size)
	if err != nil {
		t.Fatal(err)
	}
	m.w.yield, m.w.spins = schedYield, spinsFor(size)
	t.Cleanup(m.close)
	p := &processes{member: m}
	var handles [2][][HandleSize]byte
	add := func(area, region [HandleSize]byte) {
		handles[0] = append(handles[0], area)
		handles[1] = append(handles[1], region)
	}
	add(m.area.Handle().Encode(), m.region.Handle().Encode())
	for rank := 1; rank < size; rank++ {
		p.start(t, rank, size)
		var r report
		if err := p.out[rank-1].Decode(&r); err != nil {
			t.Fatal(err)
		}
		add(r.Handles[0], r.Handles[1])
	}
	p.each(t, order{Handles: handles}, func() error { return m.join(handles) })
	return p
}

func (p *processes) start(t testing.TB, rank, size int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), rankVariable+"="+strconv.Itoa(rank)+"/"+strconv.Itoa(size))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	p.cmds, p.in, p.out = append(p.cmds, cmd), append(p.in, gob.NewEncoder(in)), append(p.out, gob.NewDecoder(bufio.NewReader(out)))
}

// each has all processes follow an order, and this one f.
func (p *processes) each(t testing.TB, o order, f func() error) {
	t.Helper()
	for _, in := range p.in {
		if err := in.Encode(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := f(); err != nil {
		t.Fatalf("rank 0: %v", err)
	}
	for _, out := range p.out {
		var r report
		if err := out.Decode(&r); err != nil || r.Err != "" {
			t.Fatalf("%v; %s", err, r.Err)
		}
	}
}

// run has all ranks do a job.
func (p *processes) run(t testing.TB, o order) {
	t.Helper()
	p.each(t, o, func() error { return p.member.run(o) })
}
