package launch

import (
	"errors"
	"net"
	"sync"
)

// listenOn listens on one port of all hosts. The hosts' listeners are one.
func listenOn(hosts []string, port int) (net.Listener, error) {
	var all []net.Listener
	for _, host := range hosts {
		l, err := net.Listen("tcp", joinPort(host, port))
		if err != nil {
			for _, l := range all {
				l.Close()
			}
			return nil, err
		}
		all = append(all, l)
		port = portOf(l)
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return together(all), nil
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

// listeners is several listeners as one, on the addresses of several networks.
type listeners struct {
	all      []net.Listener
	accepted chan accepted
	closing  chan struct{}
	once     sync.Once
	tasks    sync.WaitGroup
}

type accepted struct {
	conn net.Conn
	err  error
}

func together(all []net.Listener) *listeners {
	l := &listeners{all: all, accepted: make(chan accepted), closing: make(chan struct{})}
	for _, one := range all {
		l.tasks.Go(func() { l.accept(one) })
	}
	return l
}

func (l *listeners) accept(one net.Listener) {
	for {
		conn, err := one.Accept()
		select {
		case l.accepted <- accepted{conn, err}:
		case <-l.closing:
			if err == nil {
				conn.Close()
			}
			return
		}
	}
}

// Accept is net.Listener's.
func (l *listeners) Accept() (net.Conn, error) {
	select {
	case a := <-l.accepted:
		return a.conn, a.err
	case <-l.closing:
		return nil, net.ErrClosed
	}
}

// Close ends all of them.
func (l *listeners) Close() error {
	var errs []error
	l.once.Do(func() {
		close(l.closing)
		for _, one := range l.all {
			errs = append(errs, one.Close())
		}
		l.tasks.Wait()
	})
	return errors.Join(errs...)
}

// Addr is that of the first.
func (l *listeners) Addr() net.Addr { return l.all[0].Addr() }
