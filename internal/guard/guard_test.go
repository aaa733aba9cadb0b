package guard

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/handlers"
	"github.com/capi-refit/refit/internal/registered"
)

// Edits, as words that become others.
var (
	disks    = []string{"config-1", "config-3"}
	size     = []string{"infra-1", "infra-2"}
	motd     = []string{"config-1", "config-2"}
	file     = []string{"content: one", "content: two"}
	commands = []string{"users: [{name: ann}]", "users: [{name: ann}], diskSetup: {partitions: [{device: /dev/sdb, layout: true}]}"}
	surge    = []string{"maxSurge: 0, maxUnavailable: 1", "maxSurge: 1, maxUnavailable: 0"}
	always   = []string{"rollout: {strategy", `rollout: {after: "2026-01-01T00:00:00Z", strategy`}
	soon     = []string{"rollout: {strategy", `rollout: {after: "2027-01-01T00:00:00Z", strategy`}
)

func TestEdits(t *testing.T) {
	onMars := saturdays("mars", func(s *spec) { s.MaintenanceSchedule.TimeZone = "Mars/Olympus" })
	platform := &refitv1.ClusterChangeManagementPolicy{}
	platform.Name, platform.UID = "all", "uid-all"
	platform.Spec.Strategy, platform.Spec.Replacement, platform.Spec.Overrides = "Permissive", refitv1.ForbidReplacement, refitv1.ForbidOverrides
	for name, tc := range map[string]struct {
		of      string
		words   []string
		policy  client.Object
		at      time.Time
		outcome outcome
		says    []string
	}{
		"in place":                     {of: workers, words: motd, policy: keep(), outcome: passed},
		"in place, of a control plane": {of: controlPlane, words: file, policy: keep(), outcome: passed},
		"scaled":                       {of: workers, words: []string{"replicas: 2", "replicas: 9"}, policy: keep(), outcome: passed},
		"scaled, of a control plane":   {of: controlPlane, words: []string{"replicas: 3", "replicas: 5"}, policy: keep(), outcome: passed},
		"annotated":                    {of: workers, words: []string{"a: b", "a: c"}, policy: keep(), outcome: passed},
		"rolled out in another way":    {of: workers, words: surge, policy: keep(), outcome: passed},
		"no policy":                    {of: workers, words: disks, outcome: passed},
		"forbidden": {
			of: workers, words: disks, policy: keep(), outcome: refused,
			says: []string{"w-1 of 2 Machines of MachineDeployment/fleet/md would be replaced because of spec.template.spec.bootstrap: spec.diskSetup",
				"can't be updated in place: disks are partitioned", "policy keep forbids replacement (replacement: Forbid)", "take the change of these fields back", refitv1.BypassAnnotation},
		},
		"forbidden, and a file beside it": {of: workers, words: append(slices.Clone(disks), "replicas: 2", "replicas: 5"), policy: keep(), outcome: refused},
		"another size":                    {of: workers, words: size, policy: keep(), outcome: refused, says: []string{"spec.size of the infrastructureMachine"}},
		"another size of a control plane": {of: controlPlane, words: size, policy: keep(), outcome: refused, says: []string{"m-1 of 3 Machines of KubeadmControlPlane/fleet/kcp"}},
		"disks of a control plane":        {of: controlPlane, words: commands, policy: keep(), outcome: refused, says: []string{"spec.kubeadmConfigSpec.diskSetup"}},
		"forbidden for others":            {of: workers, words: disks, policy: keep(kind.Roles(refitv1.ControlPlaneRole)), outcome: passed},
		"the policy warns":                {of: workers, words: disks, policy: keep(as(refitv1.WarnGuard)), outcome: warned, says: []string{"policy keep forbids replacement", "refit holds it back"}},
		"paused":                          {of: workers, words: append([]string{"replicas: 2", "replicas: 2\n  paused: true"}, disks...), policy: keep(), outcome: refused},
		"the platform forbids":            {of: workers, words: disks, policy: platform, outcome: refused, says: []string{"opened by no annotation in the namespace"}},

		"a window is open":              {of: workers, words: disks, policy: saturdays("weekly"), at: inside, outcome: passed},
		"jitter does not close one":     {of: workers, words: disks, policy: saturdays("weekly", refusing, jittered), at: opened, outcome: passed},
		"no window is open":             {of: workers, words: disks, policy: saturdays("weekly"), outcome: warned, says: []string{"OutsideWindow", "2026-10-03T20:00:00Z", "does not scale"}},
		"refused outside of windows":    {of: workers, words: disks, policy: saturdays("weekly", refusing), outcome: refused, says: []string{"whenClosed: Refuse", "when the policy is open"}},
		"refused, and a window is open": {of: workers, words: disks, policy: saturdays("weekly", refusing), at: inside, outcome: passed},
		"strict outside of windows":     {of: workers, words: disks, policy: saturdays("weekly", as(refitv1.StrictGuard)), outcome: refused, says: []string{"guard: Strict"}},
		"in place outside of windows":   {of: workers, words: motd, policy: saturdays("weekly", refusing), outcome: passed},

		"a surge":                 {of: workers, words: append(slices.Clone(motd), surge...), policy: keep(), outcome: warned, says: []string{"makes one machine more, and deletes the last old one"}},
		"a surge, strictly":       {of: workers, words: append(slices.Clone(motd), surge...), policy: keep(as(refitv1.StrictGuard)), outcome: refused, says: []string{"without refit being asked"}},
		"a surge outside":         {of: workers, words: append(slices.Clone(motd), surge...), policy: saturdays("weekly"), outcome: warned},
		"a surge in a window":     {of: workers, words: append(slices.Clone(motd), surge...), policy: saturdays("weekly", as(refitv1.StrictGuard)), at: inside, outcome: passed},
		"a control plane of one":  {of: strings.NewReplacer("replicas: 3", "replicas: 1", "maxSurge: 0", "maxSurge: 1").Replace(controlPlane), words: file, policy: keep(), outcome: warned, says: []string{"makes a machine beside the only one"}},
		"a rollout now":           {of: workers, words: always, policy: keep(), outcome: warned, says: []string{"made before 2026-01-01"}},
		"a rollout now, strictly": {of: workers, words: always, policy: keep(as(refitv1.StrictGuard)), outcome: refused},
		"a rollout that comes":    {of: controlPlane, words: soon, policy: keep(), outcome: warned, says: []string{"from 2027-01-01"}},
		"expiring certificates":   {of: controlPlane, words: []string{"rollout: {strategy", "rollout: {before: {certificatesExpiryDays: 21}, strategy"}, policy: keep(), outcome: warned, says: []string{"21 days before"}},
		"on delete": {
			of: workers, words: append([]string{"{type: RollingUpdate, rollingUpdate: {maxSurge: 0, maxUnavailable: 1}}", "{type: OnDelete}"}, disks...), policy: keep(), outcome: warned,
			says: []string{"until somebody deletes it"},
		},

		"a template that is not there":           {of: workers, words: []string{"config-1", "config-9"}, policy: keep(), outcome: warned, says: []string{"can't tell whether", "KubeadmConfigTemplate fleet/config-9"}},
		"a template that is not there, strictly": {of: workers, words: []string{"config-1", "config-9"}, policy: keep(as(refitv1.StrictGuard)), outcome: refused},
		"a policy that can't be read":            {of: workers, words: disks, policy: onMars, at: inside, outcome: refused, says: []string{"policy mars can't be read, so that it may forbid that", "mend the policy"}},
		"in place, and a policy that can't be":   {of: workers, words: motd, policy: onMars, at: inside, outcome: passed},
		"a field that nobody knows":              {of: controlPlane, words: []string{"users:", "colour: blue, users:"}, policy: keep(), outcome: warned, says: []string{"can't tell"}},

		"a topology that is scaled":         {of: topology, words: []string{"replicas: 2", "replicas: 9"}, policy: keep(), outcome: passed},
		"another class of a topology":       {of: topology, words: []string{"{name: one}", "{name: two}"}, policy: keep(), outcome: refused, says: []string{"Cluster/fleet/c1 MachineDeployment md-0", "spec.topology.classRef"}},
		"a version that nobody has":         {of: topology, words: []string{"v1.36.1", "v1.36.2"}, policy: keep(), outcome: refused, says: []string{"spec.topology.version", "spec.version of the machine"}},
		"a rollout of a topology now":       {of: topology, words: []string{"controlPlane: {replicas: 3}", `controlPlane: {replicas: 3, rollout: {after: "2026-01-01T00:00:00Z"}}`}, policy: keep(), outcome: warned},
		"a class that is not there":         {of: topology, words: []string{"{name: one}", "{name: three}"}, policy: keep(), outcome: warned, says: []string{"can't tell"}},
		"another class, for control planes": {of: topology, words: []string{"{name: one}", "{name: two}"}, policy: keep(kind.Roles(refitv1.ControlPlaneRole)), outcome: passed},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(fleet(t), machines()...)
			if tc.policy != nil {
				objects = append(objects, tc.policy)
			}
			if tc.at.IsZero() {
				tc.at = outside
			}
			w := newWorld(t, tc.at, objects...)
			got := w.edit(tc.of, tc.words)
			require.Equal(t, tc.outcome != refused, got.allowed, got.says)
			if tc.outcome == passed {
				require.Empty(t, got.says)
				require.Empty(t, got.AuditAnnotations)
			} else {
				require.Equal(t, string(tc.outcome), got.AuditAnnotations["outcome"], got.says)
			}
			for _, says := range tc.says {
				require.Contains(t, got.says, says)
			}
			require.Equal(t, 1., testutil.ToFloat64(w.guard.Metrics.edits.WithLabelValues(objectsOf(t, tc.of)[0].GetKind(), string(tc.outcome))))

			// A dry run is answered in the same way, and leaves nothing.
			before, err := testutil.GatherAndCount(w.registry)
			require.NoError(t, err)
			yes := true
			again := w.edit(tc.of, tc.words, func(r *admission.Request) { r.DryRun = &yes })
			require.Equal(t, got, again)
			require.Equal(t, 1., testutil.ToFloat64(w.guard.Metrics.edits.WithLabelValues(objectsOf(t, tc.of)[0].GetKind(), string(tc.outcome))))
			after, err := testutil.GatherAndCount(w.registry)
			require.NoError(t, err)
			require.Equal(t, before, after)
		})
	}
}

func TestABypassNamesTheEdit(t *testing.T) {
	w := newWorld(t, outside, append(append(fleet(t), machines()...), keep())...)
	digest := func(words []string) string {
		got := w.edit(workers, words)
		require.False(t, got.allowed)
		found := regexp.MustCompile(refitv1.BypassAnnotation + `: "([0-9a-f]{16})"`).FindStringSubmatch(got.says)
		require.Len(t, found, 2, got.says)
		require.Equal(t, found[1], got.AuditAnnotations["digest"])
		return found[1]
	}
	with := func(words []string, digest string, more ...string) []string {
		return slices.Concat(words, []string{"a: b", refitv1.BypassAnnotation + `: "other, ` + digest + `"`}, more)
	}
	got := w.edit(workers, with(disks, digest(disks)))
	require.True(t, got.allowed)
	require.Equal(t, map[string]string{"outcome": "bypassed", "digest": digest(disks)}, got.AuditAnnotations)
	require.Contains(t, got.says, "bypassed: w-1 of 2 Machines")
	require.True(t, w.edit(workers, with(disks, digest(disks), "replicas: 2", "replicas: 3")).allowed, "it may be scaled beside that")
	require.False(t, w.edit(workers, with(size, digest(disks))).allowed, "it is not for another edit")
	require.NotEqual(t, digest(disks), digest(size))

	// One that is stored is spent: it is taken back, and made again, by the digest of another refusal.
	spent := refitv1.BypassAnnotation + `: "` + digest(disks) + `"`
	stored := func(words ...string) []string { return append(words, "a: b", spent) }
	again := w.ask(review(t, objectsOf(t, workers, stored()...)[0], objectsOf(t, workers, stored(disks...)...)[0]))
	require.False(t, again.allowed, "the annotation that was left there lets it pass again")
	next := again.AuditAnnotations["digest"]
	require.NotEqual(t, digest(disks), next)
	beside := slices.Concat(disks, []string{"a: b", refitv1.BypassAnnotation + `: "` + digest(disks) + "," + next + `"`})
	require.True(t, w.ask(review(t, objectsOf(t, workers, stored()...)[0], objectsOf(t, workers, beside...)[0])).allowed)

	// Nor is one that is gone from the object any good when the edit was taken back, as git revert does it.
	of := func(generation int, words ...string) *unstructured.Unstructured {
		o := objectsOf(t, workers, words...)[0]
		o.SetGeneration(int64(generation))
		return o
	}
	edit := func(generation int, words ...string) answer {
		return w.ask(review(t, of(generation), of(generation+1, words...)))
	}
	first := edit(7, disks...).AuditAnnotations["digest"]
	manifest := with(disks, first)
	require.True(t, edit(7, manifest...).allowed)
	require.False(t, edit(9, manifest...).allowed, "it was stored and taken back")
	require.False(t, edit(10, manifest...).allowed)
	require.NotContains(t, []string{first, digest(disks)}, edit(9, disks...).AuditAnnotations["digest"])
	scaled := edit(8, manifest...)
	require.True(t, scaled.allowed, "an autoscaler has scaled it since")
	require.Equal(t, map[string]string{"outcome": "bypassed", "digest": first}, scaled.AuditAnnotations)

	// What the platform's policies forbid is opened by those alone.
	platform := &refitv1.ClusterChangeManagementPolicy{}
	platform.Name, platform.UID = "all", "uid-all"
	platform.Spec.Strategy, platform.Spec.Replacement, platform.Spec.Overrides = "Permissive", refitv1.ForbidReplacement, refitv1.ForbidOverrides
	w = newWorld(t, outside, append(append(fleet(t), machines()...), platform)...)
	firm := w.edit(workers, disks)
	require.False(t, firm.allowed)
	require.False(t, w.edit(workers, with(disks, firm.AuditAnnotations["digest"])).allowed)
}

// TestWhatWasStoredBeforeIsTakenBack: the remedy that a refusal names must not be refused itself.
func TestWhatWasStoredBeforeIsTakenBack(t *testing.T) {
	ms := objectsOf(t, strings.NewReplacer("kind: MachineDeployment", "kind: MachineSet", "name: md", "name: ms", "uid-md", "uid-ms").Replace(workers))[0]
	infra := func(name string) client.Object {
		return objectsOf(t, "apiVersion: infrastructure.cluster.x-k8s.io/v1\nkind: AcmeMachine\nmetadata: {name: "+name+", namespace: fleet, annotations: {cluster.x-k8s.io/cloned-from-name: infra-1}}\n")[0]
	}
	config := func(name string) client.Object {
		return objectsOf(t, "apiVersion: bootstrap.cluster.x-k8s.io/v1beta2\nkind: KubeadmConfig\nmetadata: {name: "+name+", namespace: fleet}\nspec: {files: [{path: /etc/motd, content: one}], users: [{name: ann}]}\n")[0]
	}
	stuck := []client.Object{worker("w-1", outdated), worker("w-2", outdated), master("m-1", outdated), master("m-2", outdated), master("m-3", outdated), ms}
	for _, name := range []string{"m-1", "m-2", "m-3"} {
		stuck = append(stuck, infra(name), config(name))
	}
	w := newWorld(t, outside, append(append(fleet(t), stuck...), keep())...)
	for name, tc := range map[string]struct {
		of           string
		stored, back []string
	}{
		"workers":                     {workers, disks, nil},
		"another size":                {workers, size, nil},
		"a control plane":             {controlPlane, commands, nil},
		"a control plane's size":      {controlPlane, size, nil},
		"a control plane's version":   {controlPlane, []string{"v1.36.1", "v1.35.0"}, nil},
		"a topology's version":        {topology, []string{"v1.36.1", "v1.36.2"}, nil},
		"workers, with another file":  {workers, disks, motd},
		"control planes, with a file": {controlPlane, commands, file},
	} {
		t.Run(name, func(t *testing.T) {
			got := w.ask(review(t, objectsOf(t, tc.of, tc.stored...)[0], objectsOf(t, tc.of, tc.back...)[0]))
			require.True(t, got.allowed, got.says)
		})
	}
	// And what they have not is refused, whatever else is under way.
	for name, tc := range map[string]struct {
		of            string
		stored, wants []string
	}{
		"workers":         {workers, motd, disks},
		"a control plane": {controlPlane, file, commands},
		"its size":        {controlPlane, file, size},
		"its version":     {controlPlane, file, []string{"v1.36.1", "v1.35.0"}},
	} {
		t.Run(name+", what they have not", func(t *testing.T) {
			got := w.ask(review(t, objectsOf(t, tc.of, tc.stored...)[0], objectsOf(t, tc.of, tc.wants...)[0]))
			require.False(t, got.allowed, got.says)
		})
	}
	got := w.ask(review(t, objectsOf(t, topology)[0], objectsOf(t, topology, "{name: one}", "{name: two}")[0]))
	require.True(t, got.allowed, "of a topology whose machines are behind nothing is sure")
	require.Contains(t, got.says, "they are not what the stored object wants")
}

// TestControllersAreNotRefused: what Cluster API makes of a topology would keep the Cluster from getting on.
func TestControllersAreNotRefused(t *testing.T) {
	w := newWorld(t, outside, append(append(fleet(t), machines()...), keep())...)
	owned := strings.Replace(workers, "cluster-name: c1", `cluster-name: c1, topology.cluster.x-k8s.io/owned: ""`, 1)
	by := func(user string) func(*admission.Request) {
		return func(r *admission.Request) { r.UserInfo.Username = user }
	}
	got := w.edit(owned, disks, by(controller))
	require.True(t, got.allowed)
	require.Contains(t, got.says, "policy keep forbids replacement")
	require.False(t, w.edit(owned, disks, by("ann")).allowed, "others may not change it behind the topology")
	require.False(t, w.edit(workers, disks, by(controller)).allowed, "what belongs to no topology is no controller's to change")
	require.False(t, w.edit(workers, append([]string{"cluster-name: c1", `cluster-name: c1, topology.cluster.x-k8s.io/owned: ""`}, disks...), by(controller)).allowed, "a label that comes with the edit says nothing")
}

func TestWhatIsNotJudged(t *testing.T) {
	w := newWorld(t, outside, append(append(fleet(t), machines()...), keep())...)
	for name, edit := range map[string]func(*admission.Request){
		"the status":   func(r *admission.Request) { r.SubResource = "status" },
		"what is made": func(r *admission.Request) { r.Operation = "CREATE" },
	} {
		require.True(t, w.edit(workers, disks, edit).allowed, name)
	}
	gone := append(slices.Clone(disks), "uid: uid-md", `uid: uid-md, deletionTimestamp: "2026-10-01T00:00:00Z"`)
	require.True(t, w.edit(workers, gone).allowed, "it is being deleted")
	require.True(t, w.edit(strings.Replace(workers, "uid-md", "uid-other", 1), disks).allowed, "nobody is told about what he knows by its name only")
	w.guard.Namespace = "other"
	require.True(t, w.edit(workers, disks).allowed, "refit looks after another namespace")
	w.guard.Namespace = ""

	for name, edit := range map[string]func(*admission.Request){
		"another name": func(r *admission.Request) { r.Name = "x" },
		"no JSON":      func(r *admission.Request) { r.Object.Raw = []byte("{") },
		"two kinds": func(r *admission.Request) {
			r.Object = review(t, objectsOf(t, controlPlane, "name: kcp", "name: md")[0], objectsOf(t, controlPlane)[0]).OldObject
		},
		"other version": func(r *admission.Request) {
			r.Object.Raw = []byte(strings.Replace(string(r.Object.Raw), "v1beta2", "v1beta1", 1))
		},
	} {
		got := w.edit(workers, disks, edit)
		require.False(t, got.allowed, name)
		require.EqualValues(t, 400, got.Result.Code, name)
	}
}

func TestMachinesThatGoAreNotCounted(t *testing.T) {
	now := outside
	deleting := func(m *clusterv1.Machine) {
		m.Finalizers = []string{"a/b"}
		m.DeletionTimestamp = new(m.CreationTimestamp)
		m.DeletionTimestamp.Time = now
	}
	w := newWorld(t, outside, append(fleet(t), worker("w-1", deleting), keep())...)
	require.Empty(t, w.edit(workers, disks).says)
}

// TestAnEditDoesNotHideItsMachines: which Cluster it is says the object that is stored, and not the one that somebody sends.
func TestAnEditDoesNotHideItsMachines(t *testing.T) {
	w := newWorld(t, outside, append(append(fleet(t), machines()...), keep())...)
	for _, becomes := range []string{"x: c1", "cluster.x-k8s.io/cluster-name: other"} {
		require.False(t, w.edit(controlPlane, append([]string{"cluster.x-k8s.io/cluster-name: c1", becomes}, size...)).allowed, becomes)
	}
}

// TestAFaultOfRefitsRefusesNothing: failurePolicy does not count for an answer.
func TestAFaultOfRefitsRefusesNothing(t *testing.T) {
	w := newWorld(t, outside, append(append(fleet(t), machines()...), keep())...)
	w.guard.Judge = nil // which panics
	got := w.edit(workers, disks)
	require.True(t, got.allowed)
	require.Equal(t, "unjudged", got.AuditAnnotations["outcome"])
}

// TestWhatARegisteredUpdaterMayClaimIsNotKnown: the guard asks none of them, and takes what they may claim for no replacement.
func TestWhatARegisteredUpdaterMayClaimIsNotKnown(t *testing.T) {
	registration := &refitv1.UpdaterRegistration{ObjectMeta: metav1.ObjectMeta{Name: "disks"}}
	for name, tc := range map[string]struct {
		policy  client.Object
		outcome outcome
	}{
		"by default": {keep(), warned},
		"strictly":   {keep(as(refitv1.StrictGuard)), refused},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, outside, append(append(fleet(t), machines()...), tc.policy, registration)...)
			require.Equal(t, string(refused), w.edit(workers, disks).AuditAnnotations["outcome"], "refit asks nobody")
			w.guard.Judge = w.guard.Judge.(*handlers.Engine).With(&registered.Registry{Client: w, Live: w})
			got := w.edit(workers, disks)
			require.Equal(t, string(tc.outcome), got.AuditAnnotations["outcome"], got.says)
			require.Contains(t, got.says, "can't tell whether w-1 of 2 Machines of MachineDeployment/fleet/md would be replaced")
			require.Contains(t, got.says, "it may be claimed by UpdaterRegistration disks")
			require.Empty(t, w.edit(workers, motd).says, "what is refit's own is known")
		})
	}
}

func TestCausesAreCounted(t *testing.T) {
	w := newWorld(t, outside, append(append(fleet(t), machines()...), keep())...)
	w.edit(workers, append(slices.Clone(motd), surge...))
	w.edit(workers, always)
	w.edit(workers, soon)
	w.edit(workers, append(append([]string{}, always...), disks...))
	counted := map[string]float64{}
	for _, cause := range []string{"surge", "rollout_after", "on_delete"} {
		counted[cause] = testutil.ToFloat64(w.guard.Metrics.unasked.WithLabelValues(cause))
	}
	require.Equal(t, map[string]float64{"surge": 1, "rollout_after": 3, "on_delete": 0}, counted)
}
