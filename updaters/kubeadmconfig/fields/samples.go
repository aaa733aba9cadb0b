package fields

import (
	"maps"
	"strings"
)

// sample are two values of the fields whose path ends so. They are such as people write, for a field for which not every
// text is good. The first that fits counts.
type sample struct {
	suffix     string
	one, other any
}

const (
	hash  = "$6$saltsalt$8RWsOfwR6M6PpnoeQiEiWzNTPo1f0HjVYjDnLZhGx16aBFRkeqiHAzfXP/LgrOWMBMXqiU2pLrXsSOHNUyUm91"
	hash2 = "$5$saltsalt$hcyDOxdIg0p3xyqtpHh/v8Ph.am06tQaovp1KpEklb7"
	key1  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFk/gSdzwbl2gcGcXmGGLMZSj0xdTJHpd+HjbfxZfrZl alice"
	key2  = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEwhdAtwjY8GYRR/adC1vfzR09hR3iLIXIlOnFbB5PEU bob"
	// packed is good as base64 and, decoded, as gzip.
	packed = "H4sIAAAAAAAAA8tIzcnJ5wIAIDA6NgYAAAA="
)

var samples = []sample{
	{"files[].path", "/etc/motd", "/etc/issue"},
	{"files[].owner", "root:root", "daemon:daemon"},
	{"files[].permissions", "0644", "0600"},
	{"files[].encoding", "base64", "gzip+base64"},
	{"files[].contentFormat", "Raw", "Template"},
	{"users[].name", "alice", "bob"},
	{"users[].groups", "adm", "adm, sudo"},
	{"users[].homeDir", "/srv/alice", "/srv/bob"},
	{"users[].shell", "/bin/bash", "/bin/sh"},
	{"users[].passwd", hash, hash2},
	{"users[].primaryGroup", "ops", "users"},
	{"users[].sudo", "ALL=(ALL) ALL", "ALL=(ALL) NOPASSWD:ALL"},
	{"users[].sshAuthorizedKeys[]", key1, key2},
	{"users[].gecos", "Alice", "Alice of operations"},
	{"ntp.servers[]", "0.pool.ntp.org", "1.pool.ntp.org"},
	{"format", "cloud-config", "ignition"},
	{"token", "abcdef.0123456789abcdef", "fedcba.0123456789abcdef"},
	{"bootstrapTokens[].expires", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
	{"taints[].timeAdded", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
	{"taints[].key", "example.com/a", "example.com/b"},
	{"taints[].effect", "NoSchedule", "PreferNoSchedule"},
	{"Args[].name", "v", "feature-gates"},
	{"Args[].value", "2", "3"},
	{"extraEnvs[].name", "A", "B"},
	{"extraEnvs[].valueFrom", fieldRef("metadata.name"), fieldRef("metadata.namespace")},
	{"imagePullPolicy", "Always", "Never"},
	{"encryptionAlgorithm", "RSA-4096", "ECDSA-P256"},
	{"Path", "/etc/a", "/etc/b"},
	{"pathType", "File", "Directory"},
	{"patches.directory", "/etc/kubernetes/patches", "/etc/kubernetes/more"},
	{"ertSANs[]", "a.example.com", "b.example.com"},
	{"imageRepository", "registry.example.com/a", "registry.example.com/b"},
	{"etcd.local.imageTag", "3.6.8-0", "3.6.9-0"},
	{"imageTag", "v1.0.0", "v1.0.1"},
}

func fieldRef(path string) map[string]any {
	return map[string]any{"fieldRef": map[string]any{"fieldPath": path}}
}

// keys are those of mappings in which not every key is good, by the end of the path.
var keys = map[string]string{"featureGates": "RootlessControlPlane"}

// siblings are what has to be in a mapping whatever else is, by the end of its path.
var siblings = []struct {
	suffix string
	fields map[string]any
}{
	{"files[]", map[string]any{"path": "/etc/motd", "content": packed}},
	{"users[]", map[string]any{"name": "alice"}},
	{"passwdFrom.secret", map[string]any{"name": "s", "key": "k"}},
	{"contentFrom.secret", map[string]any{"name": "s", "key": "k"}},
	{"bootstrapTokens[]", map[string]any{"token": "abcdef.0123456789abcdef"}},
	{"taints[]", map[string]any{"key": "example.com/a", "effect": "NoSchedule"}},
	{"Args[]", map[string]any{"name": "v", "value": "2"}},
	{"extraEnvs[]", map[string]any{"name": "A"}},
	{"extraVolumes[]", map[string]any{"name": "a", "hostPath": "/etc/a", "mountPath": "/etc/a"}},
}

// beside returns what has to be in the mapping to which a path leads.
func beside(path []string) map[string]any {
	for _, s := range siblings {
		if strings.HasSuffix(join(path), s.suffix) {
			return maps.Clone(s.fields)
		}
	}
	return map[string]any{}
}
