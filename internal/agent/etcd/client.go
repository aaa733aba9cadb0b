// Package etcd asks the etcd of a control-plane node whether it can spare a member, and takes snapshots of it.
//
// It speaks the JSON that etcd's gateway offers beside gRPC on its client port (on by default, --enable-grpc-gateway, and kubeadm
// leaves it so), with the certificate that kubeadm makes for health checks.
package etcd

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/capi-refit/refit/internal/agent/host"
)

// ClientCertificate is the file of the certificate that kubeadm makes for health checks.
const ClientCertificate = "healthcheck-client.crt"

// requestTimeout bounds all requests but that of a snapshot.
const requestTimeout = 10 * time.Second

// Client is one member, through which the cluster is seen.
type Client struct {
	endpoint string
	client   *http.Client
	trust    *tls.Config
}

// Connect returns a client of the member at endpoint, an https URL, with the certificates in dir, where kubeadm keeps those of etcd.
// It connects to nothing yet.
func Connect(r host.Root, endpoint, dir string) (*Client, error) {
	read := func(name string) ([]byte, error) {
		data, state, err := r.ReadFile(path.Join(dir, name))
		if err == nil && !state.Exists {
			err = fmt.Errorf("%s is missing", path.Join(dir, name))
		}
		return data, err
	}
	ca, err := read("ca.crt")
	if err != nil {
		return nil, err
	}
	cert, err := read(ClientCertificate)
	if err != nil {
		return nil, err
	}
	key, err := read("healthcheck-client.key")
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s and its key don't belong together", path.Join(dir, ClientCertificate))
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: x509.NewCertPool(), Certificates: []tls.Certificate{pair}}
	if !trust.RootCAs.AppendCertsFromPEM(ca) {
		return nil, fmt.Errorf("%s holds no certificate", path.Join(dir, "ca.crt"))
	}
	return &Client{
		endpoint: strings.TrimSuffix(endpoint, "/"), trust: trust,
		client: &http.Client{Transport: &http.Transport{Proxy: nil, TLSClientConfig: trust, DisableKeepAlives: true}},
	}, nil
}

// Member is one of a cluster's.
type Member struct {
	Name       string   `json:"name"`
	ClientURLs []string `json:"clientURLs"`
	// IsLearner reports that it has no vote.
	IsLearner bool `json:"isLearner"`
}

// Spare returns an error unless the cluster works on without one of its members: all the others are asked whether they are well,
// and those that are must still be a majority when one of them stops. A cluster of one or two members has none to spare.
func (c *Client) Spare(ctx context.Context) error {
	v, err := c.count(ctx)
	if err != nil {
		return err
	}
	return v.spare()
}

// Steady returns an error unless the cluster stands as firmly as one of its size can: with a member to spare or, where it has one or two
// members only, with all of them well.
func (c *Client) Steady(ctx context.Context) error {
	v, err := c.count(ctx)
	if err != nil {
		return err
	}
	if v.all <= 2 && len(v.sick) == 0 {
		return nil
	}
	return v.spare()
}

// voters are the members that have a vote.
type voters struct {
	all int
	// sick says of each that is not well why.
	sick []string
}

func (c *Client) count(ctx context.Context) (voters, error) {
	members, err := c.members(ctx)
	if err != nil {
		return voters{}, err
	}
	var v voters
	for _, m := range members {
		if m.IsLearner {
			continue
		}
		v.all++
		if err := c.health(ctx, m); err != nil {
			v.sick = append(v.sick, err.Error())
		}
	}
	return v, nil
}

func (v voters) spare() error {
	healthy, quorum := v.all-len(v.sick), v.all/2+1
	if healthy-1 >= quorum {
		return nil
	}
	message := fmt.Sprintf("etcd has no member to spare: %d of %d are healthy, and %d must be while one is out", healthy, v.all, quorum)
	if len(v.sick) > 0 {
		return fmt.Errorf("%s (%s); have it repaired first", message, strings.Join(v.sick, "; "))
	}
	return fmt.Errorf("%s; change etcd in a control plane of three or more", message)
}

// Healthy returns an error unless the member itself is well: it takes part in a read that needs a majority.
func (c *Client) Healthy(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if err := c.healthAt(ctx, c.endpoint); err != nil {
		return fmt.Errorf("the member at %s: %w", c.endpoint, err)
	}
	return nil
}

// members returns those of the cluster, as its majority knows them.
func (c *Client) members(ctx context.Context) ([]Member, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var answer struct {
		Members []Member `json:"members"`
	}
	err := c.post(ctx, "/v3/cluster/member/list", `{"linearizable":true}`, func(r io.Reader) error {
		return json.NewDecoder(r).Decode(&answer)
	})
	if err == nil && len(answer.Members) == 0 {
		err = errors.New("etcd names no members")
	}
	return answer.Members, err
}

// health returns an error unless a member is well: it takes part in a read that needs a majority.
func (c *Client) health(ctx context.Context, m Member) error {
	name := m.Name
	if name == "" {
		return errors.New("a member has not been started yet")
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := errors.New("it has no address")
	for _, u := range m.ClientURLs {
		if err = c.healthAt(ctx, u); err == nil {
			return nil
		}
	}
	return fmt.Errorf("member %s: %w", name, err)
}

func (c *Client) healthAt(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(url, "/")+"/health", http.NoBody)
	if err != nil {
		return errors.New("its address is none")
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return errors.New("it does not answer")
	}
	defer func() { _ = resp.Body.Close() }()
	var answer struct {
		Health string `json:"health"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&answer); err != nil || answer.Health != "true" || resp.StatusCode != http.StatusOK {
		return errors.New("it is not healthy")
	}
	return nil
}

// Size returns how large the member's database is, and a snapshot of it, in bytes.
func (c *Client) Size(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var answer struct {
		DBSize string `json:"dbSize"` // 64 bits are a string in the JSON of protocol buffers
	}
	err := c.post(ctx, "/v3/maintenance/status", "{}", func(r io.Reader) error { return json.NewDecoder(r).Decode(&answer) })
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(answer.DBSize, 10, 63)
	if err != nil {
		return 0, errors.New("etcd does not say how large its database is")
	}
	return n, nil
}

func (c *Client) post(ctx context.Context, path, body string, read func(io.Reader) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.endpoint+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.client.Do(req)
	if err != nil {
		return fmt.Errorf("etcd does not answer at %s: %w", c.endpoint, errors.Unwrap(err))
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd answers %s to %s", resp.Status, path)
	}
	if err := read(resp.Body); err != nil {
		return fmt.Errorf("etcd's answer to %s: %w", path, err)
	}
	return nil
}
