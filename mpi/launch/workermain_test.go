package launch

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/internal/rundir"
	"ddpbatch/mpi/launch/recovery"
	"ddpbatch/mpi/launch/rendezvous"
	"ddpbatch/mpi/store"
)

// The test binary is also the workers' program: Env holds workerSwitch, and the
// command's words say what the worker does.
const (
	workerSwitch = "LAUNCH_TEST_WORKER"
	workerFolder = "LAUNCH_TEST_FOLDER" // where workers leave marks for each other and for the test
	workerCookie = "LAUNCH_TEST_COOKIE" // tells the processes of one test from all others
)

func workerMain() {
	args := os.Args[1:]
	switch args[0] {
	case "environ": // one variable a line
		for _, entry := range os.Environ() {
			fmt.Println(entry)
		}
	case "fail": // fail RANK CODE: that rank exits when all are there, the others never do
		if rank() == atoi(args[1]) {
			await(all())
			os.Exit(atoi(args[2]))
		}
		mark(fmt.Sprint(rank()))
		forever()
	case "kill": // kill RANK SIGNAL
		if rank() == atoi(args[1]) {
			await(all())
			die(syscall.Signal(atoi(args[2])))
		}
		mark(fmt.Sprint(rank()))
		forever()
	case "stubborn": // rank 0 fails, the others ignore TERM
		signal.Ignore(syscall.SIGTERM)
		if rank() == 0 {
			await(all())
			os.Exit(1)
		}
		mark(fmt.Sprint(rank()))
		forever()
	case "wait": // wait CODE: exits with CODE at the first signal, and writes down every one
		signals := make(chan os.Signal, 8)
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR2)
		mark(fmt.Sprint(rank()))
		fmt.Println(<-signals)
		for {
			select {
			case s := <-signals:
				fmt.Println(s)
				continue
			case <-time.After(100 * time.Millisecond):
				// time for a second signal; TestSignalIsPassedOnOnce of package supervise checks that none comes
			}
			os.Exit(atoi(args[1]))
		}
	case "flaky": // flaky ROUNDS RANK CODE [MARK]: for ROUNDS rounds, RANK exits with CODE once all ranks and ROUND.MARK are there
		fmt.Println(rank(), os.Getenv("WORLD_SIZE"), os.Getenv("NODE_RANK"), os.Getenv("GROUP_WORLD_SIZE"),
			os.Getenv("TORCHELASTIC_RESTART_COUNT"), os.Getenv("DDPBATCH_ROUND"), os.Getenv("MASTER_PORT"), os.Getenv("DDPBATCH_COOKIE"))
		round := os.Getenv("DDPBATCH_ROUND")
		if atoi(round) >= atoi(args[1]) {
			break
		}
		mark(round + "." + fmt.Sprint(rank()))
		if rank() == atoi(args[2]) {
			for r := range atoi(os.Getenv("WORLD_SIZE")) {
				await([]string{round + "." + fmt.Sprint(r)})
			}
			for _, name := range args[4:] {
				await([]string{round + "." + name})
			}
			os.Exit(atoi(args[3]))
		}
		forever()
	case "store": // store ROUNDS: dials the workers' store, leaves a key there, and fails in the first ROUNDS rounds
		useStore()
		if atoi(os.Getenv("DDPBATCH_ROUND")) < atoi(args[1]) {
			os.Exit(1)
		}
	case "torch": // torch ROUNDS: counts in PyTorch's store; in the first ROUNDS rounds, rank 0 fails once all have counted
		fmt.Println(os.Getenv("TORCHELASTIC_USE_AGENT_STORE"), countInTorchStore())
		round := os.Getenv("DDPBATCH_ROUND")
		mark(round + "." + fmt.Sprint(rank()))
		if atoi(round) >= atoi(args[1]) {
			break
		}
		for r := range atoi(os.Getenv("WORLD_SIZE")) {
			await([]string{round + "." + fmt.Sprint(r)})
		}
		if rank() == 0 {
			os.Exit(1)
		}
		forever()
	case "mixed": // mixed CODE...: rank r exits with the r-th code at the first signal
		signals := make(chan os.Signal, 8)
		signal.Notify(signals, syscall.SIGTERM)
		mark(fmt.Sprint(rank()))
		<-signals
		os.Exit(atoi(args[1+rank()]))
	case "stop": // rank 0 exits with 75, the others a little later, undisturbed
		if rank() == 0 {
			await(all())
			os.Exit(75)
		}
		signals := make(chan os.Signal, 8)
		signal.Notify(signals, syscall.SIGTERM)
		mark(fmt.Sprint(rank()))
		await([]string{"go"})
		select {
		case <-signals:
			os.Exit(1)
		default:
			os.Exit(75)
		}
	case "child": // child CODE: leaves a child behind that holds stdout, ignores TERM and never ends
		child := exec.Command(os.Args[0], "orphan")
		child.Stdout = os.Stdout
		if len(args) > 2 { // setsid: the child leaves the group
			child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		}
		if err := child.Start(); err != nil {
			panic(err)
		}
		if len(args) > 3 { // stays: the worker does not end either
			forever()
		}
		mark("pid")
		await([]string{"orphan"})
		fmt.Println("parent's last word")
		os.Exit(atoi(args[1]))
	case "orphan":
		signal.Ignore(syscall.SIGTERM)
		mark("orphan")
		forever()
	case "lines": // lines N: writes N lines to both streams, in pieces
		for i := range atoi(args[1]) {
			line := fmt.Sprintf("rank %d line %d %s", rank(), i, strings.Repeat("x", i%97))
			half := len(line) / 2
			fmt.Fprint(os.Stdout, line[:half])
			fmt.Fprint(os.Stderr, line[:half])
			fmt.Fprintln(os.Stdout, line[half:])
			fmt.Fprintln(os.Stderr, line[half:])
		}
	case "hang":
		fmt.Println("the last word")
		time.Sleep(time.Hour)
	case "say": // say TEXT
		fmt.Print(args[1])
	case "agent": // agent JSON: this process is an agent
		agentMain(args[1])
	default:
		panic("no such worker: " + args[0])
	}
	os.Exit(0)
}

// remoteAgent configures an agent in a process of its own, as JSON. (A
// secret prints itself as redacted.)
type remoteAgent struct {
	Index, Count, Nproc, Attempt int
	MinCount, MaxRestarts        int
	Host, RunID, Version         string
	Ports                        []int
	Hosts, Command, Env          []string
	Secret, RunDir               string
	Sweep                        bool
	LastCall                     time.Duration
}

func agentMain(text string) {
	var r remoteAgent
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		panic(err)
	}
	dir, err := rundir.Open(r.RunDir)
	if err != nil {
		panic(err)
	}
	secret, err := auth.ParseSecret(r.Secret)
	if err != nil {
		panic(err)
	}
	v, err := Run(context.Background(), AgentConfig{
		World:     World{Index: r.Index, Count: r.Count, Nproc: r.Nproc, Host: r.Host, Hosts: r.Hosts},
		Identity:  Identity{Attempt: r.Attempt, Secret: secret, RunID: r.RunID, Version: r.Version, RunDir: dir},
		Network:   Network{OneMachine: true, MasterAddr: rendezvous.Loopback, Ports: r.Ports},
		Workers:   Workers{Command: r.Command, Env: r.Env, Sweep: r.Sweep},
		Limits:    Limits{Grace: 10 * time.Second},
		Admission: Admission{MinCount: r.MinCount, LastCall: r.LastCall},
		Policy:    recovery.Policy{MaxRestarts: r.MaxRestarts},
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(v.Exit)
}

func rank() int { return atoi(os.Getenv("RANK")) }

func atoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// all lists the marks of all other ranks.
func all() []string {
	var names []string
	for r := range atoi(os.Getenv("WORLD_SIZE")) {
		if r != rank() {
			names = append(names, fmt.Sprint(r))
		}
	}
	return names
}

func mark(name string) {
	if err := os.WriteFile(filepath.Join(os.Getenv(workerFolder), name), []byte(fmt.Sprint(os.Getpid())), 0o600); err != nil {
		panic(err)
	}
}

// await polls until every mark exists.
func await(names []string) {
	for _, name := range names {
		deadline := time.Now().Add(bound)
		for {
			if _, err := os.Stat(filepath.Join(os.Getenv(workerFolder), name)); err == nil {
				break
			}
			if time.Now().After(deadline) {
				panic("no mark " + name)
			}
			<-time.After(time.Millisecond)
		}
	}
}

// forever does not return. It does not use an empty select: in a program without cgo in which nothing else goes on, Go's runtime takes that
// for a deadlock and ends the program.
func forever() { time.Sleep(math.MaxInt64) }

func die(s syscall.Signal) {
	if err := syscall.Kill(os.Getpid(), s); err != nil {
		panic(err)
	}
	forever()
}

// useStore reaches the workers' store as ddpbatch's own workers do.
func useStore() {
	secret, err := auth.ParseSecret(os.Getenv("DDPBATCH_SECRET"))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	client, err := store.Dial(ctx, os.Getenv("DDPBATCH_STORE"), store.DialConfig{
		Secret: secret, Name: "rank",
		Binding: auth.Binding{Run: os.Getenv("DDPBATCH_RUN_ID"), Attempt: atoi(os.Getenv("DDPBATCH_ATTEMPT")), Role: "store"},
	})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	n, err := client.Add(ctx, "ranks", 1)
	fmt.Println(n, os.Getenv("DDPBATCH_ATTEMPT"), err)
}

// countInTorchStore adds 1 to a number, as a client of PyTorch 2.2 does (TCPStoreBackend.hpp): query 0 with the
// magic number, then query 4 with the key and the delta; the reply is the sum. All integers are little-endian.
func countInTorchStore() uint64 {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(os.Getenv("MASTER_ADDR"), os.Getenv("MASTER_PORT")), 20*time.Second)
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	query := append([]byte{0, 0xce, 0xf7, 0x85, 0x3c, 4}, binary.LittleEndian.AppendUint64(nil, uint64(len("ranks")))...)
	query = binary.LittleEndian.AppendUint64(append(query, "ranks"...), 1)
	if _, err := conn.Write(query); err != nil {
		panic(err)
	}
	var sum [8]byte
	if _, err := io.ReadFull(conn, sum[:]); err != nil {
		panic(err)
	}
	return binary.LittleEndian.Uint64(sum[:])
}
