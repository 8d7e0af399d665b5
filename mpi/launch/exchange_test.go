package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ddpbatch/internal/auth"
)

// exchanger is the type of AgentConfig.Exchange.
type exchanger = func(ctx context.Context, mine string) (string, error)

// step simulates Slurm's PMI-2 for a number of tasks: each task gets task 0's text once all tasks have called.
func step(tasks int) []exchanger {
	var missing atomic.Int32
	missing.Store(int32(tasks))
	all := make(chan struct{})
	var said string
	list := make([]exchanger, tasks)
	for i := range list {
		list[i] = func(ctx context.Context, mine string) (string, error) {
			if i == 0 {
				said = mine
			}
			if missing.Add(-1) == 0 {
				close(all)
			}
			select {
			case <-all:
				return said, nil
			case <-ctx.Done():
				return "", fmt.Errorf("exchange a word: %w", context.Cause(ctx))
			}
		}
	}
	return list
}

// newStep makes a world of tasks on one node. They meet through step and do not have a secret yet.
func newStep(t *testing.T, tasks int, command ...string) *world {
	w := newWorld(t, make([]int, tasks), command...)
	for i, exchange := range step(tasks) {
		c := &w.agents[i]
		c.Exchange, c.Secret, c.Ports, c.OneMachine, c.MasterAddr, c.Host = exchange, auth.Secret{}, nil, false, "n1", "n1"
		c.Local = []RankNumbers{{Rank: i, LocalRank: i, WorldSize: tasks, LocalWorldSize: tasks, Nodes: 1}}
	}
	return w
}

func TestAgentsMeetByExchange(t *testing.T) {
	w := newStep(t, 3, "environ")
	var exchanged string
	exchange := w.agents[2].Exchange
	w.agents[2].Exchange = func(ctx context.Context, mine string) (text string, err error) {
		text, err = exchange(ctx, mine)
		exchanged = text
		return text, err
	}
	if v := w.agree(w.run()); v.Cause != "done" {
		t.Fatalf("verdict is %+v", v)
	}
	var o offer
	must(t, json.Unmarshal([]byte(exchanged), &o))
	if env := w.environOf("n1", 2); env["MASTER_ADDR"] != "127.0.0.1" || env["MASTER_PORT"] == fmt.Sprint(o.Port) {
		t.Errorf("workers get %s:%s, agent 0 is at %d", env["MASTER_ADDR"], env["MASTER_PORT"], o.Port)
	}
	if len(o.Secret) != 64 || strings.Contains(w.log.String(), o.Secret) || strings.Contains(w.log.String(), `"run"`) {
		t.Errorf("the secret is %q, and the log %s", o.Secret, w.log.String())
	}
	for rank := range 3 {
		if _, there := w.environOf("n1", rank)["DDPBATCH_SECRET"]; there {
			t.Errorf("rank %d, a foreign command, has the secret", rank)
		}
	}
}

// ddpbatch's own workers get the secret that agent 0 generated.
func TestExchangedSecretReachesTheWorkers(t *testing.T) {
	w := newStep(t, 2, "environ")
	for i := range w.agents {
		w.agents[i].Builtin = true
	}
	var exchanged string
	exchange := w.agents[1].Exchange
	w.agents[1].Exchange = func(ctx context.Context, mine string) (text string, err error) {
		text, err = exchange(ctx, mine)
		exchanged = text
		return text, err
	}
	w.agree(w.run())
	var o offer
	must(t, json.Unmarshal([]byte(exchanged), &o))
	for rank := range 2 {
		if got := w.environOf("n1", rank)["DDPBATCH_SECRET"]; len(got) != 64 || got != o.Secret {
			t.Errorf("rank %d has the secret %q, and agent 0 made %q", rank, got, o.Secret)
		}
	}
}

// Agent 0 does not publish a secret that all tasks were given. A task that is the only one with a secret ends with an error.
func TestExchangeKeepsAGivenSecret(t *testing.T) {
	w := newStep(t, 2, "say", "x")
	secret := auth.NewSecret()
	var exchanged string
	exchange := w.agents[0].Exchange
	w.agents[0].Exchange = func(ctx context.Context, mine string) (string, error) {
		exchanged = mine
		return exchange(ctx, mine)
	}
	w.agents[0].Secret, w.agents[1].Secret = secret, secret
	w.agree(w.run())
	if strings.Contains(exchanged, "secret") {
		t.Errorf("agent 0 told %s", exchanged)
	}
	w = newStep(t, 2, "say", "x")
	w.agents[1].Secret = secret
	ctx, cancel := context.WithCancel(t.Context())
	first := w.begin(ctx, 0)
	if r := <-w.begin(t.Context(), 1); r.err == nil || !strings.Contains(r.Message, "give DDPBATCH_SECRET to all tasks or to none") {
		t.Errorf("an agent with a secret of its own ended with %v", r.err)
	}
	cancel()
	<-first
}

// Agents meet although some of agent 0's addresses are of no use: one refuses, one is silent, and at one another program answers.
func TestExchangeSurvivesCutNetworks(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.2:0") // accepts connections and stays silent
	must(t, err)
	defer silent.Close()
	w := newStep(t, 2, "say", "x")
	exchange := w.agents[1].Exchange
	w.agents[1].Exchange = func(ctx context.Context, mine string) (string, error) {
		text, err := exchange(ctx, mine)
		var o offer
		must(t, json.Unmarshal([]byte(text), &o))
		same, err := net.Listen("tcp", joinPort("127.0.0.3", o.Port)) // another job's listener at the same port
		must(t, err)
		t.Cleanup(func() { same.Close() })
		go func() {
			for conn, err := same.Accept(); err == nil; conn, err = same.Accept() {
				conn.Write([]byte("SSH-2.0-other\r\n"))
				conn.Close()
			}
		}()
		o.Addrs = append(addrsOf("127.0.0.9", "127.0.0.3", "127.0.0.2"), o.Addrs...)
		changed, err := json.Marshal(o)
		return string(changed), err
	}
	if v := w.agree(w.run()); v.Cause != "done" {
		t.Errorf("verdict is %+v", v)
	}
}

// If a task never calls Exchange, the other agents wait for it until JoinTimeout and report that reason.
func TestExchangeWaitsForEveryTask(t *testing.T) {
	w := newStep(t, 3, "say", "x")
	w.agents = w.agents[:2]
	for i := range w.agents {
		w.agents[i].JoinTimeout = 300 * time.Millisecond
	}
	for i, r := range w.run() {
		want := fmt.Sprintf("agent %d on n1 waited 300ms for every task of the step to come to Slurm's PMI-2, and some did not", i)
		if r.err == nil || r.Cause != "timeout" || r.Exit != 124 || !strings.Contains(r.Message, want) {
			t.Errorf("agent %d ended with %+v", i, r)
		}
	}
	// A signal ends the wait.
	w = newStep(t, 2, "say", "x")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(SignalError{Sig: 15})
	if v, err := Run(ctx, w.agents[1]); err == nil || v.Exit != 143 || v.Cause != "cancelled" {
		t.Errorf("told to stop it ended with %+v, %v", v, err)
	}
}
