package store

import (
	"context"
	"log/slog"
	"net"

	"ddpbatch/internal/auth"
)

// Store is the key-value store that ranks meet at. Methods are safe for
// concurrent use.
type Store interface {
	Set(ctx context.Context, key string, value []byte) error
	// Get waits until key is there.
	Get(ctx context.Context, key string) ([]byte, error)
	// Add adds delta to the decimal number at key (absent: 0) and returns the sum.
	Add(ctx context.Context, key string, delta int64) (int64, error)
	// CompareSet sets key to desired if its value is expected (absent and
	// expected empty: it is created), and returns the value that is there afterwards.
	CompareSet(ctx context.Context, key string, expected, desired []byte) ([]byte, error)
	// Wait returns when every key is there.
	Wait(ctx context.Context, keys ...string) error
	// Delete removes key and tells whether it was there.
	Delete(ctx context.Context, key string) (bool, error)
	Close() error
}

// ServerConfig: Secret and Binding are what clients must prove; Joined and
// Left, where set, are called with a client's name when its connection is
// authenticated and when it ends (one at a time, never under a lock). local is the address
// of this machine that the client reached.
type ServerConfig struct {
	Secret  auth.Secret
	Binding auth.Binding
	Joined  func(name string, local net.Addr)
	Left    func(name string)
	Log     *slog.Logger
}

// Server serves a store on a listener, until Close. It is itself a Store: the
// process that runs it uses it without a connection.
type Server struct{ Store }

func Serve(l net.Listener, cfg ServerConfig) *Server { panic("stub") }
func (s *Server) Addr() net.Addr                     { panic("stub") }

type DialConfig struct {
	// Addrs are tried in turn, again and again, until one proves that it
	// knows the secret or ctx ends.
	Addrs   []string
	Secret  auth.Secret
	Binding auth.Binding
	Name    string // who this client is, for the server's Joined and Left
	Log     *slog.Logger
}

// Client is a Store at the other end of one TCP connection.
type Client struct{ Store }

func Dial(ctx context.Context, cfg DialConfig) (*Client, error) { panic("stub") }

// Done is closed when the connection is gone; Err then says why.
func (c *Client) Done() <-chan struct{} { panic("stub") }
func (c *Client) Err() error            { panic("stub") }
func (c *Client) LocalAddr() net.Addr   { panic("stub") }

func NewMemory() Store                     { panic("stub") }
func Prefix(s Store, prefix string) Store { panic("stub") }
