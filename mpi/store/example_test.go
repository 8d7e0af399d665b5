package store_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"ddpbatch/mpi/store"
)

func Example() {
	ctx := context.Background()
	secret := store.NewSecret()
	binding := store.Binding{Run: "mnist-1", Attempt: 1, Role: "store"}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := store.Serve(listener, store.ServerConfig{Secret: secret, Binding: binding})
	defer server.Close()

	client, err := store.Dial(ctx, server.Addr().String(), store.DialConfig{
		Secret: secret, Binding: binding, Name: "rank 1",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	go server.Set(ctx, "rank/0", []byte("10.0.0.1:40000"))
	addr, err := client.Get(ctx, "rank/0") // waits for the key
	fmt.Println(string(addr), err)
	// Output: 10.0.0.1:40000 <nil>
}
