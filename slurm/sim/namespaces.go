package sim

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"ddpbatch/internal/proc"
)

// Namespaces holds the tasks of a step for some faults: Linux namespaces (namespaces(7)) in which a mount or a network link can be
// changed without an effect on the rest of this machine. Its methods may be called by several goroutines at once.
//
// A base process holds a mount namespace and, with a network, a switch to which every pretend node is connected. A node
// then has a network of its own, a boot id that distinguishes its machine from the others, and shared memory of its own. It cannot reach
// networks outside.
type Namespaces struct {
	disk    string // the folder that fill fills
	network bool
	asUser  bool // in a user namespace, because this process is not root's

	mu    sync.Mutex
	base  *holder
	nodes map[string]*node // by name
	full  string           // the folder on which the small file system is mounted
}

// node is a pretend node with namespaces of its own.
type node struct {
	*holder
	link string // its link to the switch
}

// NetworkNode returns pretend node i with the address that it has in a network of its own.
func NetworkNode(n Node, i int) Node {
	return Node{Name: n.Name, Address: "10.221.0." + strconv.Itoa(i+1)}
}

// setUp is how long each command that sets up namespaces may take.
const setUp = 20 * time.Second

// NewNamespaces makes namespaces, with a network for each node if network. disk is the folder whose file system the fault NoSpace
// fills. The error says what this machine lacks. The caller closes the Namespaces after everything that runs in it has ended.
func NewNamespaces(ctx context.Context, disk string, network bool) (_ *Namespaces, err error) {
	w := &Namespaces{disk: disk, network: network, asUser: os.Geteuid() != 0, nodes: map[string]*node{}}
	tools := []string{"unshare", "nsenter", "mount"}
	if network {
		tools = append(tools, "ip")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("simulate a network or a full disk: %w (unshare, nsenter and mount: util-linux; ip: iproute2)", err)
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.full, err = os.MkdirTemp("", "ddpbatch-disk-"); err != nil {
		return nil, fmt.Errorf("simulate a full disk: %w", err)
	}
	words := []string{"unshare", "--mount", "--propagation", "private"}
	script := "mount --make-rshared /"
	if w.asUser {
		words = append(words, "--user", "--map-root-user")
	}
	if network {
		words = append(words, "--net")
		script += " && ip link add switch type bridge && ip link set switch up"
	}
	if w.base, err = hold(ctx, words, script); err != nil {
		return nil, fmt.Errorf("make namespaces (%s): %w; simulate must run as root for this, or on a kernel that allows user namespaces",
			strings.Join(words, " "), err)
	}
	return w, nil
}

// nodeScript makes a new network and mount namespace look like a machine: it has shared memory of its own, and a boot id, by which
// programs distinguish machines (random(4)).
const nodeScript = `mount -t tmpfs -o mode=1777 tmpfs /dev/shm && cat /proc/sys/kernel/random/uuid >/dev/shm/boot_id &&
	mount --bind /dev/shm/boot_id /proc/sys/kernel/random/boot_id && ip link set lo up`

// AddNode gives a node a network of its own.
func (w *Namespaces) AddNode(ctx context.Context, n Node) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.network || w.nodes[n.Name] != nil {
		return nil
	}
	h, err := hold(ctx, append(w.into(w.base, "--net"), "unshare", "--mount", "--propagation", "slave", "--net"), nodeScript)
	if err != nil {
		return fmt.Errorf("make a network for %s: %w", n.Name, err)
	}
	made := &node{holder: h, link: "port" + strconv.Itoa(len(w.nodes))}
	w.nodes[n.Name] = made
	pid := strconv.Itoa(h.process.Pid())
	err = w.run(ctx, w.base, `ip link add "$0" type veth peer name eth0 netns "$1" && ip link set "$0" master switch up`, made.link, pid)
	if err == nil {
		err = w.run(ctx, h, `ip addr add "$0"/24 dev eth0 && ip link set eth0 up`, n.Address)
	}
	if err != nil {
		return fmt.Errorf("connect %s to the pretend network: %w", n.Name, err)
	}
	return nil
}

// into returns the beginning of a command that runs in a holder's namespaces.
func (w *Namespaces) into(h *holder, more ...string) []string {
	words := []string{"nsenter", "--target", strconv.Itoa(h.process.Pid())}
	if w.asUser {
		words = append(words, "--user", "--preserve-credentials")
	}
	return append(append(words, "--mount"), more...)
}

// enter returns the command that starts command on a node, in the folder dir.
func (w *Namespaces) enter(name, dir string, command []string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var words []string
	if n := w.nodes[name]; n != nil {
		words = w.into(n.holder, "--net")
	} else {
		words = w.into(w.base)
	}
	if dir == "" {
		dir = "."
	}
	return append(append(words, "sh", "-c", `cd "$0" && exec "$@"`, dir), command...)
}

// cut disconnects a node from the network. Connections are not closed: packets are lost from now on.
func (w *Namespaces) cut(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[name]
	if n == nil {
		return fmt.Errorf("%s has no network of its own", name)
	}
	return w.run(context.Background(), w.base, `ip link set "$0" down`, n.link)
}

// fillScript mounts a file system over the folder that shows the folder's contents and has no free space.
const fillScript = `mount -t tmpfs -o size=64k,mode=0700 tmpfs "$0" && mkdir "$0/upper" "$0/work" && cd "$1" &&
	mount -t overlay -o lowerdir="$2",upperdir="$0/upper",workdir="$0/work"$3 overlay "$2" && { cat /dev/zero >"$0/rest"; } 2>/dev/null; [ -s "$0/rest" ]`

// fill fills the disk.
func (w *Namespaces) fill() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	options := ""
	if w.asUser {
		options = ",userxattr"
	}
	dir, name := filepath.Split(w.disk)
	if err := w.run(context.Background(), w.base, fillScript, w.full, dir, name, options); err != nil {
		return fmt.Errorf("fill the disk of %s: %w; the kernel must support overlayfs", w.disk, err)
	}
	return nil
}

// empty undoes fill.
func (w *Namespaces) empty() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.run(context.Background(), w.base, `umount --lazy "$1" && umount --lazy "$0"`, w.full, w.disk)
}

// run runs a shell script in a holder's namespaces; words are its $0, $1, ...
func (w *Namespaces) run(ctx context.Context, h *holder, script string, words ...string) error {
	ctx, cancel := context.WithTimeout(ctx, setUp)
	defer cancel()
	net := []string{}
	if w.network {
		net = append(net, "--net")
	}
	line := append(append(w.into(h, net...), "sh", "-c", script), words...)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(ctx.Err(), fmt.Errorf("%w: %s", err, strings.TrimSpace(string(text))))
	}
	return nil
}

// Close removes the namespaces. A process that still runs in one keeps it alive.
func (w *Namespaces) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, n := range w.nodes {
		n.release()
	}
	if w.base != nil {
		w.base.release()
	}
	if w.full == "" {
		return nil
	}
	return os.Remove(w.full)
}

// holder is a process that keeps namespaces alive and does nothing else, until its input ends.
type holder struct {
	process *proc.Process
	input   *os.File
}

// hold starts a holder with the command words, which makes or enters namespaces, and waits until script has set them up.
func hold(ctx context.Context, words []string, script string) (*holder, error) {
	in, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	out, output, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, input.Close())
	}
	defer out.Close()
	words = append(words[:len(words):len(words)], "sh", "-c", "{ "+script+"\n} 2>&1 && echo ready && read -r _")
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, output, output
	p, err := proc.Start(cmd)
	output.Close()
	if err != nil {
		return nil, errors.Join(err, input.Close())
	}
	h := &holder{process: p, input: input}
	if err := h.ready(ctx, out); err != nil {
		h.release()
		return nil, err
	}
	return h, nil
}

// ready reads a holder's output until it says that it is ready.
func (h *holder) ready(ctx context.Context, out *os.File) error {
	if err := out.SetReadDeadline(time.Now().Add(setUp)); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { out.SetReadDeadline(time.Now()) })()
	var said []string
	lines := bufio.NewScanner(io.LimitReader(out, 64<<10))
	for lines.Scan() {
		if lines.Text() == "ready" {
			return nil
		}
		said = append(said, lines.Text())
	}
	return errors.Join(ctx.Err(), lines.Err(), errors.New(strings.Join(append(said, "it did not become ready"), "; ")))
}

func (h *holder) release() {
	h.input.Close()
	<-h.process.Done()
}
