package kubeadmphase

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGate(t *testing.T) {
	const (
		local, socket, rootless = "ControlPlaneKubeletLocalMode", "NodeLocalCRISocket", RootlessControlPlane
		waits, ecdsa, learner   = "WaitForAllControlPlaneComponents", "PublicKeysECDSA", "EtcdLearnerMode"
	)
	on, off := new(true), new(false)
	for name, tc := range map[string]struct {
		version, gate string
		was, want     *bool
		whole         bool
		why           string // a part of the reason; empty: kubeadm does it
	}{
		"the static pods' own":                     {version: "v1.31.0", gate: rootless, want: on},
		"the same, of the newest":                  {version: "v1.36.3", gate: rootless, was: on},
		"the same, of an unknown version":          {gate: rootless, want: on},
		"of certificates":                          {version: "v1.36.3", gate: ecdsa, want: on, why: "acts on the keys of certificates"},
		"of certificates, with a version":          {version: "v1.36.3", gate: ecdsa, want: on, whole: true, why: "acts on the keys of certificates"},
		"of certificates, off as ever":             {version: "v1.36.3", gate: ecdsa, want: off},
		"of the kubelet's runtime":                 {version: "v1.33.0", gate: socket, want: on, why: "where the kubelet is told of the container runtime"},
		"the same, on as ever":                     {version: "v1.34.0", gate: socket, want: on},
		"the same, off":                            {version: "v1.36.3", gate: socket, want: off, why: "where the kubelet is told"},
		"the same, with a version":                 {version: "v1.33.0", gate: socket, want: on, whole: true},
		"the same, before it was there":            {version: "v1.31.0", gate: socket, want: on, why: "kubeadm of v1.31.0 has no feature gate NodeLocalCRISocket"},
		"of the kubelet's kubeconfig":              {version: "v1.32.0", gate: local, want: on, why: "the server in the kubelet's kubeconfig"},
		"the same, as Cluster API adds it":         {version: "v1.31.0", gate: local, want: on, whole: true},
		"the same, as Cluster API drops it":        {version: "v1.36.0", gate: local, was: on, whole: true},
		"the same, off until it is gone":           {version: "v1.36.0", gate: local, was: off, why: "the server in the kubelet's kubeconfig"},
		"the same, after it was there":             {version: "v1.36.0", gate: local, was: off, want: on, why: "has no feature gate"},
		"of what a join waits for":                 {version: "v1.32.0", gate: waits, want: on, why: "makes or joins a machine"},
		"of how etcd joins":                        {version: "v1.31.0", gate: learner, was: on, want: off, why: "how etcd's member joins"},
		"one that nobody knows":                    {version: "v1.36.3", gate: "Any", want: on, why: "has no feature gate Any"},
		"one that nobody knew, gone":               {version: "v1.36.3", gate: "Any", was: off},
		"one of a kubeadm that is not known here":  {version: "v1.37.0", gate: rootless, want: on, why: "does not know what kubeadm of v1.37.0 does"},
		"one of a version that is none":            {version: "latest", gate: rootless, want: on, why: "not a version of Kubernetes"},
		"one that acts elsewhere, of no version":   {gate: socket, want: on, why: "is not known"},
		"one that nobody knows, of no version":     {gate: "Any", want: on, why: "is not known"},
		"one that is removed, on by itself by now": {version: "v1.33.0", gate: waits, was: on},
	} {
		t.Run(name, func(t *testing.T) {
			err := Gate(tc.version, tc.gate, tc.was, tc.want, tc.whole)
			if tc.why == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.why)
		})
	}
}

func TestEtcd(t *testing.T) {
	for name, tc := range map[string]struct {
		version, was, want string
		why                string // a part of the reason; empty: kubeadm does it
	}{
		"a newer patch":                              {was: "3.5.9-0", want: "3.5.15-0"},
		"a newer minor":                              {was: "3.5.24-0", want: "3.6.8-0"},
		"another build":                              {was: "3.6.8-0_a", want: "3.6.8-0_b"},
		"a v in front":                               {was: "3.6.8-0", want: "v3.6.9-0"},
		"a release after what is before it":          {was: "3.6.8-0", want: "3.6.8"},
		"an earlier patch":                           {was: "3.5.15-0", want: "3.5.9-0", why: "does not take etcd back from 3.5.15-0 to 3.5.9-0"},
		"what is before a release":                   {was: "3.6.8", want: "3.6.8-0", why: "does not take etcd back"},
		"an earlier minor":                           {was: "3.10.1-0", want: "3.6.9-0", why: "can't go back to an earlier minor version"},
		"a tag of one's own":                         {was: "3.6.1", want: "ours", why: `the tag "ours" is not a version`},
		"a v in front, and a build":                  {was: "v3.6.6-0", want: "3.6.8-0_ours.1"},
		"a candidate of what runs":                   {was: "v3.6.8", want: "3.6.8-rc.1", why: "does not take etcd back"},
		"from a tag of one's own":                    {was: "ours", want: "3.6.8-0", why: "kubeadm can't compare it"},
		"two numbers":                                {was: "3.6.1-0", want: "3.6", why: "is not a version"},
		"a tag where there was none":                 {version: "v1.36.3", want: "3.6.8-0"},
		"an older one than kubeadm's":                {version: "v1.36.3", want: "3.6.6-0", why: "has chosen up to 3.6.8-0"},
		"one than any patch of kubeadm may have":     {version: "v1.33.0", want: "3.5.21-0", why: "has chosen up to 3.5.24-0"},
		"one where it is not known what was chosen":  {version: "v1.37.0", want: "3.6.9-0", why: "kubeadm of v1.37.0 has chosen is not known"},
		"one where the version is not known":         {want: "3.6.9-0", why: "an unknown version"},
		"no tag any more, and kubeadm's is newer":    {version: "v1.36.3", was: "3.6.6-0"},
		"no tag any more, and kubeadm's is the same": {version: "v1.36.3", was: "3.6.8-0", why: "name the tag to go to instead"},
		"no tag any more, and nobody knows":          {was: "3.5.9-0", why: "name the tag to go to instead"},
		"no tag":                                     {},
	} {
		t.Run(name, func(t *testing.T) {
			err := Etcd(tc.version, tc.was, tc.want)
			if tc.why == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.why)
		})
	}
	require.NoError(t, RunningEtcd("3.6.8-0", ""))
	require.NoError(t, RunningEtcd("3.6.8-0", "3.6.8-0"))
	require.ErrorContains(t, RunningEtcd("3.6.8-0", "3.6.6-0"), "does not take etcd back")
	require.ErrorContains(t, RunningEtcd("ours", ""), "kubeadm can't compare it")
	require.ErrorContains(t, RunningEtcd("", "3.6.8-0"), "has no tag")
}
