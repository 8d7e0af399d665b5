package launch

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"ddpbatch/internal/auth"
	"ddpbatch/mpi/store"
)

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
