package rendezvous

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"ddpbatch/internal/auth"
)

// MaxOffer is the longest text that agents pass through Network.Exchange, in bytes.
const MaxOffer = 765

const maxOffered = 32 // the most addresses in an offer

// offer is what agent 0 publishes through Exchange: where it listens. It may hold the run's secret, so it is never logged.
type offer struct {
	Run      string       `json:"run"`
	Port     int          `json:"port,omitempty"`
	Addrs    []netip.Addr `json:"addrs,omitempty"`
	Secret   string       `json:"secret,omitempty"`  // 64 hexadecimal digits, generated for this run; "": agents were given one
	Rejected *Rejection   `json:"refused,omitempty"` // instead of all that: why the rendezvous will not happen
}

// publishOffer publishes where agent 0 listens. It returns when all agents have received it.
func (r *Rendezvous) publishOffer(ctx context.Context, port int) error {
	c := r.cfg
	o := offer{Run: c.RunID, Port: port}
	if r.fresh {
		o.Secret = c.Secret.Hex()
	}
	var err error
	if o.Addrs, err = r.localNetwork.offered(c); err != nil {
		o = offer{Run: c.RunID, Rejected: RejectionOf(err)}
	}
	return errors.Join(err, c.exchangeOffer(ctx, o))
}

func (c Config) exchangeOffer(ctx context.Context, o offer) error {
	text, err := o.encode()
	if err == nil {
		_, err = c.exchange(ctx, text)
	}
	return err
}

// receiveOffer waits for agent 0's offer.
func (c Config) receiveOffer(ctx context.Context) (offer, error) {
	text, err := c.exchange(ctx, "")
	if err != nil {
		return offer{}, err
	}
	o, err := parseOffer(text)
	switch {
	case err != nil:
	case o.Run != c.RunID:
		err = fmt.Errorf("it is for run %.80q, and this agent belongs to %.80q", o.Run, c.RunID)
	case o.Rejected != nil:
		return o, o.Rejected
	default:
		err = o.check(c)
	}
	if err != nil {
		return offer{}, fmt.Errorf("%s cannot use what agent 0 published through Slurm's PMI-2: %w", c.who(), err)
	}
	return o, nil
}

// exchange calls Exchange, and waits for at most JoinTimeout: Exchange returns only when all agents have called it.
func (c Config) exchange(ctx context.Context, mine string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.JoinTimeout, ErrTimeout)
	defer cancel()
	if c.Index == 0 {
		defer c.sayEvery(func(since time.Duration) {
			c.Log.Warn("waiting for every task of the step to come to Slurm's PMI-2", "tasks", c.Count, "since", since)
		})()
	}
	text, err := c.Exchange(ctx, mine)
	switch {
	case err == nil:
		return text, nil
	case errors.Is(err, ErrTimeout):
		return "", fmt.Errorf("%s waited %v for every task of the step to come to Slurm's PMI-2, and some did not; "+
			"they may have ended (srun --kill-on-bad-exit=1 then ends the others, too): %w", c.who(), c.JoinTimeout, ErrTimeout)
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	}
	return "", fmt.Errorf("%s cannot learn from Slurm's PMI-2 where agent 0 is (srun --mpi=none does not use PMI-2): %w", c.who(), err)
}

// encode encodes an offer in at most MaxOffer bytes. It drops addresses from the end, where the least likely ones are.
func (o offer) encode() (string, error) {
	for {
		text, err := json.Marshal(o)
		switch {
		case err != nil:
			return "", err
		case len(text) <= MaxOffer && len(o.Addrs) <= maxOffered:
			return string(text), nil
		case len(o.Addrs) > 1:
			o.Addrs = o.Addrs[:len(o.Addrs)-1]
		case o.Rejected != nil && len(o.Rejected.Message) > 0:
			short := *o.Rejected
			short.Message = short.Message[:len(short.Message)/2]
			o.Rejected = &short
		default:
			return "", fmt.Errorf("publish where agent 0 is: %d bytes are more than %d", len(text), MaxOffer)
		}
	}
}

// parseOffer parses an offer that anybody may have written. Its errors show nothing of the text, which may hold a secret.
func parseOffer(text string) (o offer, err error) {
	if len(text) > MaxOffer {
		return o, fmt.Errorf("it has %d bytes, more than %d", len(text), MaxOffer)
	}
	if json.Unmarshal([]byte(text), &o) != nil {
		return offer{}, errors.New("it cannot be read")
	}
	return o, nil
}

// check reports what keeps the agent that c is for from following an offer.
func (o offer) check(c Config) error {
	switch {
	case !isPort(o.Port) || len(o.Addrs) == 0 || len(o.Addrs) > maxOffered:
		return fmt.Errorf("it has port %d and %d addresses", o.Port, len(o.Addrs))
	case o.Secret == "" && c.Secret.IsZero():
		return errors.New("agent 0 was given the run's secret, and this agent was not; give DDPBATCH_SECRET to all tasks or to none")
	case o.Secret != "" && !c.Secret.IsZero():
		return errors.New("this agent was given the run's secret, and agent 0 was not; give DDPBATCH_SECRET to all tasks or to none")
	}
	for _, addr := range o.Addrs {
		if !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() || addr.Zone() != "" || addr.IsLoopback() && !c.oneNode() {
			return fmt.Errorf("%v is not an address of another node", addr)
		}
	}
	if o.Secret == "" {
		return nil
	}
	_, err := auth.ParseSecret(o.Secret)
	return err
}
