package testkit_test

import (
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"

	"ddpbatch/internal/testkit"
)

// TestFreePorts: a program that knows the ports can listen on them, at one address or at all, and no other program gets them.
func TestFreePorts(t *testing.T) {
	first := testkit.FreePorts(t, 3)
	for i, host := range []string{"127.0.0.1", "127.0.0.2", ""} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(first+i)))
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer syscall.Close(fd)
		if err := syscall.Bind(fd, &syscall.SockaddrInet4{Port: first + i}); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("port %d is bound once more: %v", first+i, err)
		}
	}
}
