package probe

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/capi-refit/refit/internal/agent/kubelet"
)

const (
	// shimPrefix is what the names of containerd's shims begin with, one of which each pod sandbox has, and shimNamespace is where containerd
	// has the kubelet's.
	shimPrefix    = "containerd-shim"
	shimNamespace = "k8s.io"
	// settled is for how long, in seconds, a shim has to run until containerd has to know of it: it knows of a pod when that has its network.
	settled = 300
	// ticks is USER_HZ of proc_pid_stat(5), which is the same on all architectures that Go supports.
	ticks = 100
	// maxArgs is how much of a command line is read. That of a shim is shorter, and a process can make its own as long as it likes.
	maxArgs = 4 << 10
)

// sandboxID is what the ID of a sandbox looks like.
var sandboxID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// pods asks whether containerd knows of all pod sandboxes that run. One whose directories were moved starts well, and knows none: the
// kubelet then starts all pods a second time beside those that run on.
func (r runtime) pods(ctx context.Context) error {
	return r.call(func(c cri.RuntimeServiceClient, found kubelet.Runtime) error {
		if !strings.Contains(found.Socket, "containerd") {
			return ErrAbsent
		}
		shims, err := r.shims(ctx)
		if err != nil || len(shims) == 0 {
			return err
		}
		list, err := c.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
		if err != nil {
			return err
		}
		for _, s := range list.GetItems() {
			if s.GetState() == cri.PodSandboxState_SANDBOX_READY {
				shims = slices.DeleteFunc(shims, func(id string) bool { return id == s.GetId() })
			}
		}
		if len(shims) > 0 {
			return fmt.Errorf("%d of them run without it, among them %q: it keeps its containers in other directories than when they were started", len(shims), shims[0])
		}
		return nil
	})
}

// shims returns the IDs of the sandboxes whose shims have run for long, and in which something runs: containerd 2.3 can leave the shim of a
// sandbox behind that it has removed.
func (r runtime) shims(ctx context.Context) ([]string, error) {
	up, state, err := r.root.ReadFile("/proc/uptime")
	if err != nil || !state.Exists {
		return nil, err
	}
	now, _ := strconv.ParseFloat(strings.SplitN(string(up), " ", 2)[0], 64)
	processes, err := r.root.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	found, parents := map[string]string{}, map[string]bool{}
	for _, p := range processes {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		at := path.Join("/proc", p.Name())
		s, ok := r.stat(at)
		if !ok {
			continue // it has ended meanwhile
		}
		parents[s.parent] = parents[s.parent] || s.state != zombie
		if id := r.shim(at); id != "" && s.began <= now-settled {
			found[p.Name()] = id
		}
	}
	maps.DeleteFunc(found, func(pid, _ string) bool { return !parents[pid] })
	return slices.Compact(slices.Sorted(maps.Values(found))), nil
}

// zombie is the state of a process that has ended, and that nobody has asked about.
const zombie = "Z"

// processStat is what /proc says of a process: its state, its parent, and when it began, in seconds since the boot.
type processStat struct {
	state, parent string
	began         float64
}

func (r runtime) stat(process string) (processStat, bool) {
	text, _, err := r.root.ReadFile(path.Join(process, "stat"))
	at := strings.LastIndex(string(text), ") ") // a process can give itself any name
	if err != nil || at < 0 {
		return processStat{}, false
	}
	fields := strings.Fields(string(text)[at+2:])
	if len(fields) < 20 {
		return processStat{}, false
	}
	began, err := strconv.ParseFloat(fields[19], 64) // starttime, the 22nd field
	return processStat{fields[0], fields[1], began / ticks}, err == nil
}

// shim returns the ID of the sandbox that a process is the shim of. It may end while it is looked at.
func (r runtime) shim(process string) string {
	args := r.args(process)
	if len(args) == 0 || !strings.HasPrefix(path.Base(args[0]), shimPrefix) || option(args, "-namespace") != shimNamespace || !r.trusted(process) {
		return ""
	}
	if id := option(args, "-id"); sandboxID.MatchString(id) {
		return id
	}
	return ""
}

// trusted reports whether a process is root's and in the node's own PID namespace. Any other can call itself a shim, and a containerd in a
// pod has shims of its own.
func (r runtime) trusted(process string) bool {
	first, err := r.root.Readlink("/proc/1/ns/pid")
	if err != nil || r.root.CheckOwned(process) != nil {
		return false
	}
	its, err := r.root.Readlink(path.Join(process, "ns/pid"))
	return err == nil && its == first
}

// args returns the arguments that a process was started with, as far as they fit into maxArgs.
func (r runtime) args(process string) []string {
	f, _, err := r.root.Open(path.Join(process, "cmdline"))
	if err != nil || f == nil {
		return nil
	}
	defer f.Close()
	line, err := io.ReadAll(io.LimitReader(f, maxArgs))
	if err != nil {
		return nil
	}
	args := strings.Split(string(line), "\x00")
	return args[:len(args)-1] // each argument ends with a NUL: what is after the last one was cut off
}

func option(args []string, name string) string {
	if i := slices.Index(args, name); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}
