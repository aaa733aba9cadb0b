package staticpodtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// WithEtcd has the node be one of three members of etcd, whose gateway API answers for.
func (n *Node) WithEtcd() {
	n.Helper()
	n.Members, n.DatabaseSize = `{"name":"a"},{"name":"b"},{"name":"c"}`, "16384"
	cert, key := n.CA.Issue("kube-etcd-healthcheck-client")
	n.Put("/etc/kubernetes/pki/etcd/ca.crt", string(n.CA.PEM))
	n.Put("/etc/kubernetes/pki/etcd/ca.key", string(n.CA.KeyPEM))
	n.Put("/etc/kubernetes/pki/etcd/healthcheck-client.crt", string(cert))
	n.Put("/etc/kubernetes/pki/etcd/healthcheck-client.key", string(key))
}

// Etcd answers in the place of etcd's gateway, and of the health of each member. It reports whether the request was for them.
func (n *Node) Etcd(w http.ResponseWriter, r *http.Request) bool {
	if n.Members == "" {
		return false
	}
	database := bytes.Repeat([]byte("etcd"), 4096)
	digest := sha256.Sum256(database)
	switch r.URL.Path {
	case "/v3/cluster/member/list":
		_, _ = io.WriteString(w, `{"members":[`+strings.ReplaceAll(n.Members, `"}`, `","clientURLs":["`+n.API.URL+`"]}`)+`]}`)
	case "/v3/maintenance/status":
		_, _ = io.WriteString(w, `{"dbSize":"`+n.DatabaseSize+`"}`)
	case "/v3/maintenance/snapshot":
		_ = json.NewEncoder(w).Encode(map[string]any{"result": map[string]any{"blob": database}})
		_ = json.NewEncoder(w).Encode(map[string]any{"result": map[string]any{"blob": digest[:]}})
	case "/health":
		_, _ = io.WriteString(w, `{"health":"true"}`)
	default:
		return false
	}
	return true
}
