package machineupdate

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const (
	// maxAsks bounds the Machines whose updates are to be recorded, about 500 bytes each. One more is told to ask again.
	maxAsks = 100_000
	// maxDigests bounds what is asked for one of them at a time. Cluster API asks for one; others can reach the port of the hooks, too.
	maxDigests = 4
	// maxRound bounds the Machines of a Cluster that have a turn together. Other Clusters have theirs then.
	maxRound = 500
)

// asks are the updates that are asked for and not recorded yet. Those of a Cluster have a turn together, and Clusters take turns.
type asks struct {
	// clusters are those that have Machines in line.
	clusters workqueue.TypedInterface[types.NamespacedName]

	mu sync.Mutex
	of map[types.NamespacedName]*ask // by the key of the Machine
	// line are the Machines of each Cluster that wait for its turn, in the order in which they were asked for.
	line map[types.NamespacedName][]types.NamespacedName
}

// ask is what a Machine is asked to be updated to.
type ask struct {
	key, cluster types.NamespacedName
	digests      []string
	since        time.Time // of the first of them
	inLine       bool
	tries        int // that have failed
}

func newAsks() *asks {
	return &asks{
		of: map[types.NamespacedName]*ask{}, line: map[types.NamespacedName][]types.NamespacedName{},
		clusters: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{Name: "machineupdate-recorder"}),
	}
}

// add adds what a Machine is asked for, unless it is there already. It returns for how many Machines something is, and whether the last try for this one has
// failed; not ok, if there is no place for it.
func (a *asks) add(machine *clusterv1.Machine, digest string, now time.Time) (queued int, failed, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := client.ObjectKeyFromObject(machine)
	of, there := a.of[key]
	switch {
	case there && slices.Contains(of.digests, digest):
		return len(a.of), of.tries > 0, true
	case there && len(of.digests) >= maxDigests, !there && len(a.of) >= maxAsks:
		return 0, false, false
	case !there:
		of = &ask{key: key, cluster: clusterOf(machine), since: now}
		a.of[key] = of
	}
	of.digests = append(of.digests, digest)
	a.enqueue(of)
	return len(a.of), of.tries > 0, true
}

// enqueue has a Machine come at the end of its Cluster's line. The lock is had.
func (a *asks) enqueue(of *ask) {
	if !of.inLine {
		of.inLine = true
		a.line[of.cluster] = append(a.line[of.cluster], of.key)
		a.clusters.Add(of.cluster)
	}
}

// take takes those from a Cluster's line whose turn it is, as they are now.
func (a *asks) take(cluster types.NamespacedName) []ask {
	a.mu.Lock()
	defer a.mu.Unlock()
	line := a.line[cluster]
	turn := line[:min(len(line), maxRound)]
	if rest := line[len(turn):]; len(rest) > 0 {
		a.line[cluster] = rest
		a.clusters.Add(cluster)
	} else {
		delete(a.line, cluster)
	}
	taken := make([]ask, 0, len(turn))
	for _, key := range turn {
		of := a.of[key]
		if of.inLine = false; len(of.digests) == 0 { // all was recorded meanwhile
			delete(a.of, key)
			continue
		}
		one := *of
		one.digests = slices.Clone(of.digests)
		taken = append(taken, one)
	}
	return taken
}

// again has a Machine have another turn.
func (a *asks) again(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if of, ok := a.of[key]; ok {
		a.enqueue(of)
	}
}

// retry has a Machine have another turn soon, after a try that has failed. It returns false if there were too many.
func (a *asks) retry(key types.NamespacedName) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	of, ok := a.of[key]
	if !ok || of.tries >= recordTries {
		return false
	}
	time.AfterFunc(leastBackoff<<of.tries, func() { a.again(key) })
	of.tries++
	return true
}

// since is since when something is asked for a Machine.
func (a *asks) since(key types.NamespacedName) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if of, ok := a.of[key]; ok {
		return of.since
	}
	return time.Time{}
}

// forget forgets what a Machine is asked for, if it is that.
func (a *asks) forget(key types.NamespacedName, digest string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of, ok := a.of[key]
	if !ok {
		return
	}
	of.tries = 0
	if of.digests = slices.DeleteFunc(of.digests, func(d string) bool { return d == digest }); len(of.digests) == 0 && !of.inLine {
		delete(a.of, key)
	}
}

// number returns for how many Machines something is asked.
func (a *asks) number() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.of)
}
