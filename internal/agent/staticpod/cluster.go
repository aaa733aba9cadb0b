package staticpod

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/capi-refit/refit/internal/agent/host"
)

// The kubeconfigs that kubeadm writes.
const (
	KubeletConfig = "/etc/kubernetes/kubelet.conf"
	AdminConfig   = "/etc/kubernetes/admin.conf"
)

const (
	// requestTimeout bounds one request, so that one to an API server that has just gone does not take all of an action's time.
	requestTimeout = 10 * time.Second
	// maxAnswer bounds what is read of an answer. All pods of a node are far less.
	maxAnswer = 64 << 20
)

// Cluster is the API server as a kubeconfig of the node reaches it.
type Cluster struct {
	server string
	user   string
	client *http.Client
}

// kubeconfig is as much of one as kubeadm writes.
type kubeconfig struct {
	root host.Root
	// dir is that of the file, from which paths in it begin.
	dir string

	CurrentContext string `json:"current-context"`
	Contexts       []struct {
		Name    string `json:"name"`
		Context struct {
			Cluster string `json:"cluster"`
			User    string `json:"user"`
		} `json:"context"`
	} `json:"contexts"`
	Clusters []struct {
		Name    string `json:"name"`
		Cluster struct {
			Server     string `json:"server"`
			ServerName string `json:"tls-server-name"`
			CA         string `json:"certificate-authority"`
			CAData     []byte `json:"certificate-authority-data"`
		} `json:"cluster"`
	} `json:"clusters"`
	Users []struct {
		Name string `json:"name"`
		User struct {
			Cert     string `json:"client-certificate"`
			CertData []byte `json:"client-certificate-data"`
			Key      string `json:"client-key"`
			KeyData  []byte `json:"client-key-data"`
		} `json:"user"`
	} `json:"users"`
}

// Connect returns the cluster of a kubeconfig on the node. It connects to nothing yet.
func Connect(r host.Root, file string) (*Cluster, error) {
	c, err := connect(r, file)
	if err != nil {
		return nil, fmt.Errorf("%s can't be used: %w", file, err)
	}
	return c, nil
}

func connect(r host.Root, file string) (*Cluster, error) {
	data, state, err := r.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if !state.Exists {
		return nil, errors.New("it is missing")
	}
	config := kubeconfig{root: r, dir: path.Dir(file)}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return nil, errors.New("it is not a kubeconfig")
	}
	c, trust := &Cluster{}, &tls.Config{MinVersion: tls.VersionTLS12}
	for _, entry := range config.Contexts {
		if entry.Name != config.CurrentContext {
			continue
		}
		if err := config.server(entry.Context.Cluster, c, trust); err != nil {
			return nil, err
		}
		if err := config.user(entry.Context.User, c, trust); err != nil {
			return nil, err
		}
	}
	if c.server == "" {
		return nil, errors.New("its current context has no server")
	}
	c.client = newClient(trust)
	return c, nil
}

// server takes the server of a cluster, and how it is verified.
func (k *kubeconfig) server(name string, c *Cluster, trust *tls.Config) error {
	for _, entry := range k.Clusters {
		if entry.Name != name {
			continue
		}
		ca, err := k.bytes(entry.Cluster.CAData, entry.Cluster.CA)
		if err != nil {
			return err
		}
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(ca) {
			return errors.New("it has no certificate of the cluster's authority")
		}
		c.server, trust.ServerName = strings.TrimSuffix(entry.Cluster.Server, "/"), entry.Cluster.ServerName
	}
	return nil
}

// user takes the credentials of a user.
func (k *kubeconfig) user(name string, c *Cluster, trust *tls.Config) error {
	for _, entry := range k.Users {
		if entry.Name != name {
			continue
		}
		cert, err := k.bytes(entry.User.CertData, entry.User.Cert)
		if err != nil {
			return err
		}
		key, err := k.bytes(entry.User.KeyData, entry.User.Key)
		if err != nil {
			return err
		}
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return errors.New("its user has no certificate with a key")
		}
		c.user, trust.Certificates = pair.Leaf.Subject.CommonName, []tls.Certificate{pair}
	}
	return nil
}

// bytes returns data, or what is in the file that stands for it.
func (k *kubeconfig) bytes(data []byte, file string) ([]byte, error) {
	if len(data) > 0 || file == "" {
		return data, nil
	}
	if !path.IsAbs(file) {
		file = path.Join(k.dir, file)
	}
	data, _, err := k.root.ReadFile(file)
	return data, err
}

// newClient keeps no connection: the server on the other end is about to be replaced.
func newClient(trust *tls.Config) *http.Client {
	return &http.Client{
		Transport: &http.Transport{Proxy: nil, TLSClientConfig: trust, DisableKeepAlives: true, ForceAttemptHTTP2: true},
		Timeout:   requestTimeout,
	}
}

// At returns a client with the credentials of c for one server of the cluster, by address and port, whatever is in front of
// them. It is verified by a name that each API server has.
func (c *Cluster) At(address string) *Cluster {
	transport, _ := c.client.Transport.(*http.Transport)
	trust := transport.TLSClientConfig.Clone()
	trust.ServerName = "kubernetes"
	return &Cluster{server: "https://" + address, user: c.user, client: newClient(trust)}
}

// Host returns the name or the address of the server, without its port, or "" if it is not to be told.
func (c *Cluster) Host() string {
	u, err := url.Parse(c.server)
	if err != nil {
		return ""
	}
	return u.Hostname()
}

// NodeName returns the node that the credentials are of, which the kubelet's certificate says.
func (c *Cluster) NodeName() (string, error) {
	name, ok := strings.CutPrefix(c.user, "system:node:")
	if !ok || name == "" {
		return "", errors.New("the certificate is not that of a node")
	}
	return name, nil
}

// ReadNode reads the node's own Node into v, as its kubelet may.
func ReadNode(ctx context.Context, r host.Root, v any) error {
	c, err := Connect(r, KubeletConfig) // each time: the kubelet renews its certificate
	if err != nil {
		return err
	}
	name, err := c.NodeName()
	if err != nil {
		return fmt.Errorf("%s: %w", KubeletConfig, err)
	}
	return c.Get(ctx, "/api/v1/nodes/"+name, nil, v)
}

// TLS returns how servers of the cluster are verified.
func (c *Cluster) TLS() *tls.Config {
	transport, _ := c.client.Transport.(*http.Transport)
	return transport.TLSClientConfig.Clone()
}

// Get reads an object, or a list, into v. If v is nil the answer is not looked at.
func (c *Cluster) Get(ctx context.Context, path string, query url.Values, v any) error {
	target := c.server + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		return fmt.Errorf("the API server does not answer: %w", cause(err))
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("the API server answers %s to GET %s", resp.Status, path)
	case err != nil:
		return fmt.Errorf("the answer to GET %s breaks off: %w", path, err)
	case v == nil:
		return nil
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("the answer to GET %s can't be read", path)
	}
	return nil
}

// cause leaves out the address with its query, which url.Error repeats.
func cause(err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		return cmp.Or(failed.Err, err)
	}
	return err
}
