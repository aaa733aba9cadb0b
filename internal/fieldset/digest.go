package fieldset

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
)

// notCompared are the fields of a MachineSpec that Cluster API blanks before it compares (internal/util/inplace), since
// they never are a reason for a rollout.
var notCompared = []string{"clusterName", "bootstrap", "infrastructureRef", "providerID", "minReadySeconds", "readinessGates", "taints"}

var notComparedDeletion = []string{"nodeDrainTimeoutSeconds", "nodeVolumeDetachTimeoutSeconds", "nodeDeletionTimeoutSeconds"}

// RolloutFields returns those fields of a decoded MachineSpec that Cluster API compares. Its argument stays as it is.
func RolloutFields(spec any) any {
	m, ok := spec.(map[string]any)
	if !ok {
		return spec
	}
	out := without(m, notCompared...)
	if deletion, ok := m["deletion"].(map[string]any); ok {
		if rest := without(deletion, notComparedDeletion...); len(rest) > 0 {
			out["deletion"] = rest
		} else {
			delete(out, "deletion")
		}
	}
	return out
}

// Digest identifies the desired specs of a machine. It leaves out what is no reason for a rollout, and the discovery
// part of a KubeadmConfig, whose tokens change by themselves.
func Digest(specs map[Object]any) (string, error) {
	view := maps.Clone(specs)
	view[Machine] = set(RolloutFields(view[Machine]))
	if config, ok := view[BootstrapConfig].(map[string]any); ok {
		if join, ok := config["joinConfiguration"].(map[string]any); ok {
			config = maps.Clone(config)
			config["joinConfiguration"] = without(join, "discovery")
			view[BootstrapConfig] = config
		}
	}
	canonical, err := json.Marshal(view) // sorts the keys of mappings
	if err != nil {
		return "", fmt.Errorf("digest the desired specs: %w", err)
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:]), nil
}

// set leaves out of a decoded spec what is there and says nothing: null, "", {} and []. Cluster API's own requests have a Machine as its Go
// types write it, which leave these out or not; the API server has it as whoever wrote it did.
func set(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, value := range v {
			if value = set(value); value != nil {
				out[name] = value
			}
		}
		if len(out) > 0 {
			return out
		}
	case []any:
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = set(value)
		}
		if len(out) > 0 {
			return out
		}
	case string:
		if v != "" {
			return v
		}
	default:
		return v
	}
	return nil
}

func without(m map[string]any, fields ...string) map[string]any {
	out := maps.Clone(m)
	for _, f := range fields {
		delete(out, f)
	}
	return out
}
