package kubelet

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/host/hosttest"
	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

type fixture struct {
	*testing.T
	hosttest.Files
	units *hosttest.Units
	kind  *Kind
}

func newFixture(t *testing.T, file string) *fixture {
	t.Helper()
	dir := t.TempDir()
	u := &hosttest.Units{States: map[string]host.UnitState{}}
	h := host.Host{
		Root: host.Root{Dir: dir, Private: filepath.Join(dir, "var/lib/refit")}, Disk: host.Disk{NoSync: true},
		Clock: staticpodtest.Clock{}, Units: u,
	}
	x := &fixture{t, hosttest.NewFiles(t, dir), u, New(h)}
	if file != "" {
		x.Put(FlagsFile, file)
	}
	return x
}

func (x *fixture) plan(was, want *node.Resource) kind.Answer {
	x.Helper()
	a, err := x.kind.Plan(x.Context(), kind.Question{Was: was, Known: was != nil, Desired: want, Rules: disruption.BuiltinRules()})
	require.NoError(x, err)
	return a
}

func (x *fixture) change(was, want *node.Resource) kind.Change {
	x.Helper()
	a := x.plan(was, want)
	require.Empty(x, a.Blocked)
	require.Equal(x, node.Write, a.Operation)
	return kind.Change{Was: was, Desired: want, Before: a.Before}
}

func (x *fixture) make(c kind.Change) {
	x.Helper()
	_, err := x.kind.Make(x.Context(), c)
	require.NoError(x, err)
}

const memory = "/var/lib/refit/kubelet-flags.json"

func TestPlan(t *testing.T) {
	restart := []disruption.Action{{Type: disruption.Restart, Unit: Unit}}
	drained := []disruption.Action{{Type: disruption.Drain}, {Type: disruption.Restart, Unit: Unit}}
	state := func(policy string) func(x *fixture) {
		return func(x *fixture) { x.Put("/var/lib/kubelet/cpu_manager_state", `{"policyName":"`+policy+`"}`) }
	}
	for name, tc := range map[string]struct {
		file      string
		was, want *node.Resource
		prepare   func(x *fixture)
		actions   []disruption.Action
		conflict  bool
		blocked   string
		drift     []string
	}{
		"an added argument":                {file: kubeadmsLine, was: args(), want: args("max-pods=1"), actions: restart},
		"nothing":                          {file: kubeadmsLine, was: args(), want: args()},
		"unchanged":                        {file: kubeadmsLine, was: args("v=2"), want: args("v=2")},
		"the same in another order":        {file: kubeadmsLine, was: args("v=2", "a=b"), want: args("a=b", "v=2"), drift: []string{"--a"}},
		"drift":                            {file: kubeadmsLine, was: args("v=4"), want: args("v=4"), drift: []string{"--v"}},
		"not known, but there":             {file: kubeadmsLine, want: args("v=2")},
		"not known, and not there":         {file: kubeadmsLine, want: args("v=4"), actions: restart},
		"changed, but there already":       {file: kubeadmsLine, was: args("v=1"), want: args("v=2")},
		"changed on both sides":            {file: kubeadmsLine, was: args("v=1"), want: args("v=3"), actions: restart, conflict: true},
		"not a kubeadm node":               {was: args(), want: args("v=3"), blocked: "not a kubeadm node"},
		"not a kubeadm node, but no wish":  {was: args(), want: args()},
		"a value that can't be carried":    {file: kubeadmsLine, was: args(), want: args("a=secret value"), blocked: "--a has white space"},
		"a file that can't be read":        {file: "x\n", was: args(), want: args("a=b"), blocked: "by hand"},
		"one that can't, but no wish":      {file: "x\n", was: args(), want: args(), drift: []string{FlagsFile}},
		"kubeadm's own is not known":       {file: kubeadmsLine, was: args("container-runtime-endpoint=unix:///run/containerd/containerd.sock"), want: args(), blocked: "--container-runtime-endpoint"},
		"how CPUs are managed":             {file: kubeadmsLine, was: args(), want: args("cpu-manager-policy=static"), actions: drained},
		"where containers run":             {file: kubeadmsLine, was: args(), want: args("topology-manager-scope=pod"), actions: drained},
		"reserved CPUs, none handed out":   {file: kubeadmsLine, was: args(), want: args("reserved-cpus=0"), prepare: state("none"), actions: restart},
		"reserved CPUs, some handed out":   {file: kubeadmsLine, was: args(), want: args("reserved-cpus=0"), prepare: state("static"), actions: drained},
		"a node without systemctl":         {file: kubeadmsLine, was: args(), want: args("cpu-manager-policy=static"), prepare: func(x *fixture) { state("none")(x); x.kind.host.Units = nil }, blocked: "no systemctl"},
		"the specs no longer speak of it":  {file: kubeadmsLine, was: args("v=2")},
		"underscores for dashes":           {file: kubeadmsLine, want: args("container_runtime_endpoint=unix:///run/containerd/containerd.sock")},
		"memory that is not managed twice": {file: kubeadmsLine, was: args("max-pods=1"), want: args("max-pods=1"), drift: []string{"--max-pods"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t, tc.file)
			if tc.prepare != nil {
				tc.prepare(x)
			}
			a := x.plan(tc.was, tc.want)
			require.Equal(t, tc.actions, a.Actions)
			require.Equal(t, tc.actions != nil, a.Operation == node.Write)
			require.Equal(t, tc.conflict, a.Conflict)
			require.Equal(t, tc.drift, a.Drift)
			if tc.blocked == "" {
				require.Empty(t, a.Blocked)
			} else {
				require.Contains(t, a.Blocked, tc.blocked)
				require.NotContains(t, a.Blocked, "secret")
			}
			require.Equal(t, len(tc.file) > 0, x.Get(FlagsFile) == tc.file, "planning changes nothing")
		})
	}
	t.Run("a policy that has it replaced", func(t *testing.T) {
		x := newFixture(t, kubeadmsLine)
		a, err := x.kind.Plan(t.Context(), kind.Question{Desired: args("v=4")})
		require.NoError(t, err)
		require.Contains(t, a.Blocked, "no rule says")
	})
	t.Run("drift that is to be repaired", func(t *testing.T) {
		x := newFixture(t, kubeadmsLine)
		q := kind.Question{Was: args("v=4"), Known: true, Desired: args("v=4"), Repair: true, Rules: disruption.BuiltinRules()}
		a, err := x.kind.Plan(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, node.Write, a.Operation)
		x.make(kind.Change{Was: q.Was, Desired: q.Desired, Before: a.Before})
		require.Empty(t, x.plan(q.Was, q.Desired).Drift)
	})
}

func TestMakeAndUndo(t *testing.T) {
	x := newFixture(t, kubeadmsLine)
	first := x.change(args(), args("container-runtime-endpoint=unix:///x", "max-pods=9"))
	x.make(first)
	made := x.Get(FlagsFile)
	require.Equal(t, `KUBELET_KUBEADM_ARGS="--v=2 --container-runtime-endpoint=unix:///x --max-pods=9"`+"\n", made)
	require.JSONEq(t, `{"container-runtime-endpoint":["--container-runtime-endpoint=unix:///run/containerd/containerd.sock"]}`, x.Get(memory))
	x.make(first)
	require.Equal(t, made, x.Get(FlagsFile), "the second time")
	require.Empty(t, x.plan(first.Desired, first.Desired).Drift)

	second := x.change(first.Desired, args())
	x.make(second)
	require.Equal(t, `KUBELET_KUBEADM_ARGS="--v=2 --container-runtime-endpoint=unix:///run/containerd/containerd.sock"`+"\n", x.Get(FlagsFile))
	require.Equal(t, "(missing)", x.Get(memory))
	for range 2 {
		require.NoError(t, x.kind.Undo(t.Context(), second))
		require.Equal(t, made, x.Get(FlagsFile))
		require.Contains(t, x.Get(memory), "containerd.sock")
	}
	require.NoError(t, x.kind.Undo(t.Context(), first))
	require.Equal(t, kubeadmsLine, x.Get(FlagsFile))
	require.Equal(t, "(missing)", x.Get(memory))
	require.Empty(t, x.units.Calls, "the kubelet is restarted by an action")
}

// TestDeathWithin takes the states in which a process that dies can leave the two files.
func TestDeathWithin(t *testing.T) {
	for name, leave := range map[string]func(x *fixture, memoryBefore, memoryAfter, flagsAfter string){
		"before anything":                    func(*fixture, string, string, string) {},
		"when all is remembered":             func(x *fixture, _, after, _ string) { x.Put(memory, after) },
		"when the arguments are written too": func(x *fixture, _, after, flags string) { x.Put(memory, after); x.Put(FlagsFile, flags) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t, kubeadmsLine)
			c := x.change(args(), args("v=4"))
			x.make(c)
			flags, kept := x.Get(FlagsFile), x.Get(memory)
			require.NoError(t, x.kind.Undo(t.Context(), c))
			leave(x, "", kept, flags)
			x.make(c)
			require.Equal(t, flags, x.Get(FlagsFile))
			require.Equal(t, kept, x.Get(memory))
		})
	}
	t.Run("when one that came back is not forgotten yet", func(t *testing.T) {
		x := newFixture(t, kubeadmsLine)
		x.make(x.change(args(), args("v=4")))
		kept := x.Get(memory)
		c := x.change(args("v=4"), args())
		x.make(c)
		flags := x.Get(FlagsFile)
		x.Put(memory, kept)
		x.make(c)
		require.Equal(t, flags, x.Get(FlagsFile))
		require.Equal(t, "(missing)", x.Get(memory))
	})
}

func TestManagersOfResources(t *testing.T) {
	const cpu, mem = "/var/lib/kubelet/cpu_manager_state", "/var/lib/kubelet/memory_manager_state"
	x := newFixture(t, kubeadmsLine)
	x.Put(cpu, `{"policyName":"none"}`)
	x.Put(mem, `{"policyName":"None"}`)
	c := x.change(args(), args("cpu-manager-policy=static", "reserved-memory=x"))
	x.make(c)
	require.Equal(t, []string{"stop kubelet.service", "start kubelet.service"}, x.units.Calls)
	require.Equal(t, "(missing)", x.Get(cpu))
	require.NotEqual(t, "(missing)", x.Get(mem))
	x.Put(cpu, `{"policyName":"static"}`)
	require.NoError(t, x.kind.Undo(t.Context(), c))
	require.JSONEq(t, `{"policyName":"none"}`, x.Get(cpu))
	require.Equal(t, kubeadmsLine, x.Get(FlagsFile))

	x.units.Fails = "stop"
	_, err := x.kind.Make(t.Context(), c)
	require.ErrorContains(t, err, "systemctl stop kubelet.service")
	require.Equal(t, kubeadmsLine, x.Get(FlagsFile), "nothing is written while the kubelet runs")
	require.JSONEq(t, `{"policyName":"none"}`, x.Get(cpu))
}

func TestAwait(t *testing.T) {
	var answers atomic.Int64 // how many more times it is not well
	kubelet := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answers.Add(-1) >= 0 || r.URL.Path != "/healthz" {
			http.Error(w, "secret-value", http.StatusInternalServerError)
		}
	}))
	defer kubelet.Close()
	at, err := url.Parse(kubelet.URL)
	require.NoError(t, err)
	await := func(t *testing.T, config, flags string) (string, error) {
		t.Helper()
		x := newFixture(t, flags)
		if config != "" {
			x.Put(ConfigFile, config)
		}
		x.kind.host.Clock = &staticpodtest.Impatient{Left: 5}
		return Await(t.Context(), x.kind.host)
	}
	for name, tc := range map[string]struct{ config, flags, note, fails string }{
		"a kubelet that comes up":   {config: "healthzPort: " + at.Port()},
		"on all addresses":          {config: "healthzBindAddress: 0.0.0.0\nhealthzPort: " + at.Port()},
		"set by arguments":          {config: "healthzPort: 1", flags: `KUBELET_KUBEADM_ARGS="--healthz-port=` + at.Port() + ` --healthz-bind-address=127.0.0.1"` + "\n"},
		"turned off":                {config: "healthzPort: 0", note: "turned off"},
		"no configuration":          {},
		"one that is none":          {config: "- a", fails: "not the configuration"},
		"nobody there":              {config: "healthzPort: 1", fails: "nothing answers at http://127.0.0.1:1/healthz"},
		"an argument that is wrong": {config: "{}", flags: `KUBELET_KUBEADM_ARGS="--healthz-port=x"` + "\n", fails: "not a number"},
	} {
		t.Run(name, func(t *testing.T) {
			answers.Store(2)
			note, err := await(t, tc.config, tc.flags)
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.note == "", note == "", note)
			require.Contains(t, note, tc.note)
		})
	}
	t.Run("one that is never well", func(t *testing.T) {
		answers.Store(1 << 30)
		_, err := await(t, "healthzPort: "+at.Port(), "")
		var unhealthy *UnhealthyError
		require.ErrorAs(t, err, &unhealthy)
		require.ErrorContains(t, err, "500")
		require.NotContains(t, err.Error(), "secret-value")
	})
	for name, files := range map[string]map[string]string{
		"in a file of --config-dir": {
			FlagsFile:                                  `KUBELET_KUBEADM_ARGS="--config-dir=/etc/kubernetes/kubelet.conf.d"` + "\n",
			"/etc/kubernetes/kubelet.conf.d/10.conf":   "healthzPort: 2\n",
			"/etc/kubernetes/kubelet.conf.d/20.conf":   "kind: KubeletConfiguration\nhealthzPort: 0\n",
			"/etc/kubernetes/kubelet.conf.d/90.backup": "healthzPort: 3\n",
		},
		"by the arguments of Debian's packages": {"/etc/default/kubelet": "# none\nKUBELET_EXTRA_ARGS=--healthz-port=1\nKUBELET_EXTRA_ARGS=\"--v=2 --healthz-port=0\"\n"},
		"by those of rpm's, after kubeadm's":    {FlagsFile: `KUBELET_KUBEADM_ARGS="--healthz-port=1"` + "\n", "/etc/sysconfig/kubelet": "KUBELET_EXTRA_ARGS=--healthz-port 0\n"},
	} {
		t.Run("turned off "+name, func(t *testing.T) {
			x := newFixture(t, "")
			x.Put(ConfigFile, "healthzPort: 1\n")
			for file, content := range files {
				x.Put(file, content)
			}
			url, why, err := Healthz(x.kind.host.Root)
			require.NoError(t, err)
			require.Empty(t, url)
			require.Contains(t, why, "turned off")
		})
	}
	url, _, err := Healthz(newFixture(t, "").kind.host.Root)
	require.NoError(t, err)
	require.Empty(t, url)
	x := newFixture(t, "")
	x.Put(ConfigFile, "{}")
	url, _, err = Healthz(x.kind.host.Root)
	require.NoError(t, err)
	require.Equal(t, "http://127.0.0.1:10248/healthz", url)
}
