// Package mt19937 is the 32-bit Mersenne Twister of Matsumoto and Nishimura
// (ACM TOMACS 8(1), 1998), the generator behind torch.manual_seed on a CPU. Its
// stream is PyTorch's bit for bit, so that initial weights and the order of
// samples are PyTorch's too.
//
//	g := mt19937.New(42)
//	fmt.Println(g.Uint32())
//
// It is fast and well distributed, and predictable: never use it for secrets.
package mt19937
