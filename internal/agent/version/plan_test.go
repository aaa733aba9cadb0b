package version

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/capi-refit/refit/internal/agent/kind"
	"github.com/capi-refit/refit/internal/agent/kubelet"
	"github.com/capi-refit/refit/internal/agent/staticpod/staticpodtest"
	"github.com/capi-refit/refit/internal/disruption"
	"github.com/capi-refit/refit/internal/node"
)

func (w *world) remove(p string) { require.NoError(w, os.RemoveAll(w.Path(p))) }

// bare takes away all by which a node is known as one of kubeadm's.
func (w *world) bare() {
	w.remove(kubelet.FlagsFile)
	w.remove("/etc/kubernetes/manifests")
}

func TestPlanOfAWorker(t *testing.T) {
	for name, tc := range map[string]struct {
		was, want string
		prepare   func(w *world)
		question  func(q *kind.Question)
		write     bool
		conflict  bool
		blocked   string
		drift     []string
		stage     []string
	}{
		"nothing":                               {was: oldVersion, want: oldVersion},
		"nothing known, and there already":      {want: oldVersion},
		"changed, but there already":            {was: oldVersion, want: newVersion, prepare: func(w *world) { w.reported = newVersion }},
		"the specs no longer speak of it":       {was: oldVersion, want: newVersion, question: func(q *kind.Question) { q.Desired = nil }},
		"another way of calling kubeadm":        {was: oldVersion, want: oldVersion, question: func(q *kind.Question) { q.Desired.Version.PatchesDirectory = "/p" }},
		"a patch":                               {was: oldVersion, want: newVersion, write: true},
		"a patch, and not known":                {want: newVersion, write: true},
		"a minor version":                       {was: oldVersion, want: nextMinor, prepare: func(w *world) { w.serves = "v1.37.1" }, write: true},
		"a release that is on the node":         {was: oldVersion, want: newVersion, question: func(q *kind.Question) { q.Source = nil }, write: true},
		"a release that has to be staged":       {was: oldVersion, want: newVersion, prepare: func(w *world) { w.releases.missing = []string{"kubelet v1.36.3"} }, write: true, stage: []string{"kubelet v1.36.3"}},
		"a release that is not complete yet":    {was: oldVersion, want: newVersion, prepare: func(w *world) { w.remove("/releases/" + newVersion) }, write: true, stage: []string{"Kubernetes v1.36.3"}},
		"no source":                             {was: oldVersion, want: newVersion, prepare: func(w *world) { w.remove("/releases/" + newVersion) }, question: func(q *kind.Question) { q.Source = nil }, blocked: "no KubernetesSource that has it selects the machine"},
		"a source that can't be used":           {was: oldVersion, want: newVersion, prepare: func(w *world) { w.releases.unfit = errors.New("no checksum") }, blocked: "KubernetesSource s can't be used for Kubernetes v1.36.3: no checksum"},
		"a source of another version":           {was: oldVersion, want: newVersion, prepare: func(w *world) { w.remove("/releases/" + newVersion) }, question: func(q *kind.Question) { q.Source.Version = nextMinor }, blocked: "no KubernetesSource"},
		"drift":                                 {was: newVersion, want: newVersion, drift: []string{"kubelet v1.36.1"}},
		"drift that is repaired":                {was: newVersion, want: newVersion, question: func(q *kind.Question) { q.Repair = true }, write: true, conflict: true},
		"an API server that does not answer":    {was: newVersion, want: newVersion, prepare: func(w *world) { w.silent = true }, drift: []string{"kubelet v1.36.1"}},
		"nobody knows":                          {was: newVersion, want: newVersion, prepare: func(w *world) { w.silent = true; w.Program("kubelet", "exit 1") }, drift: []string{"kubelet of unknown version"}},
		"nobody knows, and it is changed":       {was: oldVersion, want: newVersion, prepare: func(w *world) { w.silent = true; w.Program("kubelet", "exit 1") }, blocked: "version of the kubelet is not known"},
		"a downgrade":                           {was: oldVersion, want: "v1.35.9", blocked: "the node runs Kubernetes v1.36.1 and can't be brought to v1.35.9: a node is not taken back to an older version; set the version to v1.36.1"},
		"a downgrade of a patch":                {was: oldVersion, want: "v1.36.0", blocked: "not taken back"},
		"a skipped minor version":               {was: oldVersion, want: "v1.38.0", blocked: "can't skip a minor version; go to v1.37 first"},
		"another major version":                 {was: oldVersion, want: "v2.0.0", blocked: "another major version"},
		"no version":                            {was: oldVersion, want: "latest", blocked: `"latest" is not a version`},
		"newer than the API server":             {was: oldVersion, want: newVersion, prepare: func(w *world) { w.serves = "v1.36.2" }, blocked: "would be newer; have the control plane updated first"},
		"as new as the API server, but a build": {was: oldVersion, want: newVersion, prepare: func(w *world) { w.serves = "v1.36.3+build" }, write: true},
		"a version that the specs never named":  {was: "v1.36.0", want: newVersion, write: true, conflict: true},
		"a rule that says otherwise": {was: oldVersion, want: newVersion, question: func(q *kind.Question) {
			q.Rules.Domains = map[disruption.Domain][]disruption.Action{disruption.KubernetesVersion: {{Type: disruption.Replace}}}
		}, blocked: "is not made in place"},
		"no systemd":                                 {was: oldVersion, want: newVersion, prepare: func(w *world) { w.kind.host.Units = nil }, blocked: "has no systemctl"},
		"no kubelet, and nothing changed":            {was: oldVersion, want: oldVersion, prepare: func(w *world) { w.remove("/usr/bin/kubelet") }},
		"no kubelet, and nothing known":              {want: oldVersion, prepare: func(w *world) { w.remove("/usr/bin/kubelet") }},
		"no kubelet":                                 {was: oldVersion, want: newVersion, prepare: func(w *world) { w.remove("/usr/bin/kubelet") }, blocked: "has no kubelet that kubeadm has set up"},
		"not kubeadm's, and nothing changed":         {was: oldVersion, want: oldVersion, prepare: (*world).bare},
		"not kubeadm's":                              {was: oldVersion, want: newVersion, prepare: (*world).bare, blocked: "has no kubelet that kubeadm has set up"},
		"not kubeadm's, and another call of kubeadm": {was: oldVersion, want: oldVersion, prepare: (*world).bare, question: func(q *kind.Question) { q.Repair = true }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			if tc.prepare != nil {
				tc.prepare(w)
			}
			q := w.question(tc.was, tc.want)
			if tc.question != nil {
				tc.question(&q)
			}
			a, err := w.kind.Plan(t.Context(), q)
			require.NoError(t, err)
			if tc.blocked == "" {
				require.Empty(t, a.Blocked)
			}
			require.Contains(t, a.Blocked, tc.blocked)
			require.Equal(t, tc.write, a.Operation == node.Write)
			require.Equal(t, tc.conflict, a.Conflict)
			require.Equal(t, tc.drift, a.Drift)
			require.Equal(t, tc.stage, a.Stage)
			if tc.write {
				require.Equal(t, []disruption.Action{{Type: disruption.Drain}}, a.Actions)
				require.Equal(t, len(tc.stage) > 0, a.Before == nil)
				require.Empty(t, a.Notes)
			}
			require.Empty(t, w.calls, "planning restarts nothing")
			require.Empty(t, w.releases.calls, "planning installs nothing")
			require.Equal(t, "(missing)", w.Get("/calls"), "planning changes nothing by kubeadm")
		})
	}
}

func TestPlanOfAControlPlane(t *testing.T) {
	alone := func(w *world) { w.Members = `{"name":"a"}` }
	weak := func(w *world) { w.Members = `{"name":"a"},{"name":"b"},` + sickMember }
	for name, tc := range map[string]struct {
		was, want string
		prepare   func(w *world)
		write     bool
		conflict  bool
		blocked   string
		drift     []string
		stage     []string
	}{
		"a patch":                      {was: oldVersion, want: newVersion, write: true},
		"a control plane of one":       {was: oldVersion, want: newVersion, prepare: alone, write: true},
		"a member of etcd that is out": {was: oldVersion, want: newVersion, prepare: weak, blocked: "etcd has no member to spare: 2 of 3 are healthy"},
		"no manifest of etcd":          {was: oldVersion, want: newVersion, prepare: func(w *world) { w.remove("/etc/kubernetes/manifests/etcd.yaml") }, blocked: "etcd.yaml is missing"},
		"nothing":                      {was: oldVersion, want: oldVersion},
		"drift":                        {was: newVersion, want: newVersion, drift: []string{"kubelet v1.36.1", "kube-apiserver v1.36.1", "kube-controller-manager v1.36.1", "kube-scheduler v1.36.1"}},
		"drift of one": {was: oldVersion, want: oldVersion, prepare: func(w *world) {
			w.Put("/etc/kubernetes/manifests/kube-scheduler.yaml", w.manifest("kube-scheduler", newVersion))
		}, drift: []string{"kube-scheduler v1.36.3"}},
		"one that is missing":                  {was: oldVersion, want: oldVersion, prepare: func(w *world) { w.remove("/etc/kubernetes/manifests/kube-scheduler.yaml") }, drift: []string{"kube-scheduler missing"}},
		"kubeadm-config that is not there yet": {was: oldVersion, want: newVersion, prepare: func(w *world) { w.configure(oldVersion) }, blocked: "kubeadm-config in kube-system says Kubernetes v1.36.1, not v1.36.3, and kubeadm goes by it; Cluster API's control plane provider writes it before it has machines updated, and has not done so yet"},
		"static pods that are there already":   {was: oldVersion, want: newVersion, prepare: func(w *world) { w.upgradePods() }, write: true},
		"static pods that are newer":           {was: oldVersion, want: "v1.36.2", prepare: func(w *world) { w.upgradePods(); w.configure("v1.36.2") }, blocked: "not taken back"},
		"static pods that nobody has named":    {was: "v1.36.0", want: newVersion, prepare: func(w *world) { w.reported = newVersion }, write: true, conflict: true},
		"another etcd, and a member to spare":  {was: oldVersion, want: newVersion, prepare: func(w *world) { w.Put("/etcd-tag", "3.6.9-0") }, write: true},
		"another etcd, and none":               {was: oldVersion, want: newVersion, prepare: func(w *world) { w.Put("/etcd-tag", "3.6.9-0"); alone(w) }, blocked: "etcd has no member to spare"},
		"another etcd, but the specs name it": {was: oldVersion, want: newVersion, write: true, prepare: func(w *world) {
			w.Put("/etcd-tag", "3.6.9-0")
			alone(w)
			w.Config = replaced(w.Config, "dataDir: /var/lib/etcd", "imageTag: 3.6.8-0")
		}},
		"another registry, and no member to spare": {was: oldVersion, want: newVersion, blocked: "etcd has no member to spare", prepare: func(w *world) {
			alone(w)
			w.Config = replaced(w.Config, "registry.k8s.io", "mirror.example")
		}},
		"an etcd elsewhere": {was: oldVersion, want: newVersion, write: true, prepare: func(w *world) {
			w.remove("/etc/kubernetes/manifests/etcd.yaml")
			w.Config = replaced(w.Config, "{local: {dataDir: /var/lib/etcd}}", "{external: {endpoints: [https://10.0.0.9:2379]}}")
			w.clock.ahead = 10 * time.Minute
			alone(w)
		}},
		"no room for a snapshot of etcd": {was: oldVersion, want: newVersion, prepare: func(w *world) { w.DatabaseSize = "1152921504606846976" }, blocked: "no room on the node for a snapshot of etcd in /var/lib/refit/etcd: "},
		"no room for a copy of etcd": {was: oldVersion, want: newVersion, blocked: "kubeadm's copy of etcd's data in /etc/kubernetes/tmp", prepare: func(w *world) {
			w.Put("/etcd-tag", "3.6.9-0")
			w.largeEtcd()
		}},
		"no room for a copy of etcd that kubeadm does not make": {was: oldVersion, want: newVersion, prepare: (*world).largeEtcd, write: true},
		"a kubeadm that can't be asked":                         {was: oldVersion, want: newVersion, prepare: func(w *world) { w.remove("/releases/v1.36.3/kubeadm"); alone(w) }, blocked: "etcd has no member to spare"},
		"certificates to renew, and none":                       {was: oldVersion, want: newVersion, prepare: func(w *world) { w.clock.ahead = 10 * time.Minute; alone(w) }, blocked: "etcd has no member to spare"},
		"a release that has to be staged, and none": {was: oldVersion, want: newVersion, prepare: func(w *world) {
			w.releases.missing = []string{"images.tar"}
			w.clock.ahead = 10 * time.Minute
			alone(w)
		}, write: true, stage: []string{"images.tar"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newControlPlane(t, newVersion)
			if tc.prepare != nil {
				tc.prepare(w)
			}
			a := w.ask(tc.was, tc.want)
			if tc.blocked == "" {
				require.Empty(t, a.Blocked)
			}
			require.Contains(t, a.Blocked, tc.blocked)
			require.Equal(t, tc.write, a.Operation == node.Write)
			require.Equal(t, tc.conflict, a.Conflict)
			require.Equal(t, tc.drift, a.Drift)
			require.Equal(t, tc.stage, a.Stage)
			require.Empty(t, w.calls)
			require.Equal(t, "(missing)", w.Get("/calls"))
		})
	}
}

// largeEtcd gives etcd more data than any disk of a test has room for, without taking any.
func (w *world) largeEtcd() {
	w.Put("/var/lib/etcd/member/snap/db", "")
	require.NoError(w, os.Truncate(w.Path("/var/lib/etcd/member/snap/db"), 8<<40))
}

func TestRoomIsNotAskedForWhileARunIsUnderWay(t *testing.T) {
	w := newControlPlane(t, newVersion)
	w.DatabaseSize = "1152921504606846976"
	q := w.question(oldVersion, newVersion)
	q.UnderWay = true
	a, err := w.kind.Plan(t.Context(), q)
	require.NoError(t, err)
	require.Empty(t, a.Blocked)
	_, err = w.kind.Make(t.Context(), kind.Change{Was: q.Was, Desired: q.Desired, Before: a.Before})
	require.ErrorContains(t, err, "no room on the node", "the run looks for itself")
	require.Equal(t, "(missing)", w.Get("/calls"))
}

// TestARunTakesUpWhatItHasLeftOfEtcd has a run be interrupted when etcd is in no state for a change to begin: it may be what the run itself
// has left, so it is for the run to mend, or to go back from.
func TestARunTakesUpWhatItHasLeftOfEtcd(t *testing.T) {
	for name, leave := range map[string]func(*world){
		"its manifest is away":  func(w *world) { w.remove("/etc/kubernetes/manifests/etcd.yaml") },
		"a member does not run": func(w *world) { w.Members = `{"name":"a"},{"name":"b"},` + sickMember },
	} {
		t.Run(name, func(t *testing.T) {
			w := newControlPlane(t, newVersion)
			leave(w)
			q := w.question(oldVersion, newVersion)
			a, err := w.kind.Plan(t.Context(), q)
			require.NoError(t, err)
			require.NotEmpty(t, a.Blocked, "nothing begins")
			q.UnderWay = true
			a, err = w.kind.Plan(t.Context(), q)
			require.NoError(t, err)
			require.Empty(t, a.Blocked)
		})
	}
}

// upgradePods has the node run the new static pods already.
func (w *world) upgradePods() {
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		w.Put("/etc/kubernetes/manifests/"+name+".yaml", w.manifest(name, newVersion))
	}
}

func TestPlanErrors(t *testing.T) {
	t.Run("an API server whose version is not known", func(t *testing.T) {
		w := newWorld(t)
		w.serves = "none"
		_, err := w.kind.Plan(t.Context(), w.question(oldVersion, newVersion))
		require.ErrorContains(t, err, "the version of the API server is not known")
	})
	t.Run("a kubeadm that names no etcd", func(t *testing.T) {
		w := newControlPlane(t, newVersion)
		w.PutMode("/releases/"+newVersion+"/kubeadm", "#!/bin/sh\necho registry.k8s.io/pause:3.10\n", 0o700)
		_, err := w.kind.Plan(t.Context(), w.question(oldVersion, newVersion))
		require.ErrorContains(t, err, "kubeadm names no image of etcd")
	})
	t.Run("a kubelet that does not say what to go back to", func(t *testing.T) {
		w := newWorld(t)
		w.Program("kubelet", "exit 1")
		_, err := w.kind.Plan(t.Context(), w.question(oldVersion, newVersion))
		require.ErrorContains(t, err, "does not say its version")
	})
	t.Run("no way back", func(t *testing.T) {
		w := newWorld(t)
		w.remove("/releases/" + oldVersion)
		require.Contains(t, w.ask(oldVersion, newVersion).Notes[0], "can't be taken back to it")
	})
	t.Run("kubeadm-config that can't be read", func(t *testing.T) {
		w := newControlPlane(t, newVersion)
		w.Set(func(n *staticpodtest.Node) { n.Config = "" })
		_, err := w.kind.Plan(t.Context(), w.question(oldVersion, newVersion))
		require.ErrorContains(t, err, "kubeadm-config")
	})
}

func replaced(text, old, by string) string { return strings.Replace(text, old, by, 1) }
