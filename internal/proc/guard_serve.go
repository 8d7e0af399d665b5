package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// An order to a guard is one of these bytes, followed by a cookie or by the number of a group.
const (
	orderCookie = '='
	orderGroup  = '+'
	orderDone   = '~' // the group has ended; its number may be reused
)

const (
	maxOrder   = 64 // bytes
	guardLimit = 30 * time.Second
)

// ServeGuard does all the work of a guard. It takes orders from its arguments and reads further ones from more. The end of more means that
// the process that gives orders has ended. ServeGuard then kills what it was ordered to kill, for up to half a minute.
func ServeGuard(ctx context.Context, orders []string, more io.Reader) (Swept, error) {
	cookies, groups, err := readOrders(orders, more)
	if errors.Is(err, errOrders) {
		return Swept{}, err
	}
	var now unix.Timespec
	if e := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); e != nil {
		return Swept{}, errors.Join(err, fmt.Errorf("read the clock: %w", e))
	}
	ctx, cancel := context.WithTimeout(ctx, guardLimit)
	defer cancel()
	died := uint64(time.Duration(now.Nano()) / tick)
	bearers := targetsOf(slices.Collect(maps.Keys(cookies))...)
	var all Swept
	for group := range groups {
		swept, e := sweepGroup(ctx, group, died, bearers)
		all.add(swept)
		err = errors.Join(err, e)
	}
	swept, e := sweep(ctx, bearers)
	all.add(swept)
	return all, errors.Join(err, e)
}

func (s *Swept) add(more Swept) {
	s.Killed = append(s.Killed, more.Killed...)
	s.Left = append(s.Left, more.Left...)
}

// readOrders reads all orders. Invalid ones are left out, and returned as an error.
func readOrders(orders []string, more io.Reader) (cookies map[string]bool, groups map[int]bool, err error) {
	cookies, groups = map[string]bool{}, map[int]bool{}
	follow := func(order string) {
		if e := followOrder(order, cookies, groups); e != nil {
			err = errors.Join(err, e)
		}
	}
	for _, order := range orders {
		follow(order)
	}
	lines := bufio.NewReaderSize(more, maxOrder)
	for {
		line, cut, e := lines.ReadLine()
		switch {
		case errors.Is(e, io.EOF):
			return cookies, groups, err
		case e != nil:
			return nil, nil, fmt.Errorf("%w: %w", errOrders, e)
		case cut: // the rest of the line is not valid either
			line = append([]byte("?"), line...)
		}
		follow(string(line))
	}
}

// errOrders means that it is unknown whether the process that gives orders lives.
var errOrders = errors.New("read the guard's orders")

func followOrder(order string, cookies map[string]bool, groups map[int]bool) error {
	if len(order) < 2 {
		return fmt.Errorf("%q is not an order for a guard", order)
	}
	what := order[1:]
	if order[0] == orderCookie {
		if err := checkCookie(what); err != nil {
			return err
		}
		cookies[what] = true
		return nil
	}
	group, err := strconv.ParseUint(what, 10, 31)
	switch {
	case err != nil || group < 2 || len(order) > maxOrder:
		return fmt.Errorf("%.64q is not an order for a guard", order)
	case order[0] == orderGroup:
		groups[int(group)] = true
	case order[0] == orderDone:
		delete(groups, int(group))
	default:
		return fmt.Errorf("%q is not an order for a guard", order)
	}
	return nil
}

// sweepGroup kills a group that was led by a child of the process that died, unless another group has its number by now. This process first
// joins the group: that keeps the number from being reused, and succeeds only for a group of the same session (setpgid(2)). The group is
// the right one if a member has one of the cookies, or began before died, in ticks since the machine started: a number is not reused while
// its group has a member, and a later group begins with a new process.
func sweepGroup(ctx context.Context, group int, died uint64, bearers targets) (Swept, error) {
	if err := unix.Setpgid(0, group); err != nil {
		return Swept{}, nil // no such group
	}
	defer func() { _ = unix.Setpgid(0, 0) }() // back to its own group
	all, err := stats()
	if err != nil {
		return Swept{}, err
	}
	env := newEnvironReader(CookieVariable)
	defer env.close()
	known := slices.ContainsFunc(all, func(s stat) bool {
		return s.group == group && s.pid != unix.Getpid() && (s.start <= died || bearers.matches(s, env.of(s)))
	})
	if !known {
		return Swept{}, nil
	}
	return sweep(ctx, targets{others: func(s stat, _ environ) bool { return s.group == group }})
}
