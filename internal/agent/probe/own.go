package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/capi-refit/refit/internal/agent/effect"
	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
)

// Own returns the probes that policies have, see disruption.Probe.
func Own(h host.Host, probes []disruption.Probe) []Probe {
	out := make([]Probe, 0, len(probes))
	for _, p := range probes {
		o := own{h, p}
		made := Probe{
			Name: "probe " + p.Name, Look: "the probe of NodeDisruptionPolicy " + p.From + ": " + host.Redact(p.Asks()),
			key: "probe " + p.Key(), timeout: p.Timeout, Tries: 1 + p.Retries,
		}
		switch {
		case p.HTTP != nil:
			made.ask = o.http
		case p.TCP != "":
			made.ask = o.tcp
		case p.Unit != "":
			made.ask, made.Unit = o.unit, p.Unit
		case p.Condition != nil:
			made.ask, made.Elsewhere = o.condition, true
		default:
			made.ask = o.exec
		}
		out = append(out, made)
	}
	return out
}

// own is a probe of a policy's on a node.
type own struct {
	host  host.Host
	probe disruption.Probe
}

func (o own) exec(ctx context.Context) error {
	if len(o.probe.Exec) == 0 {
		return errors.New("it asks nothing")
	}
	_, err := o.host.RunTelling(ctx, host.Command{Name: o.probe.Exec[0], Args: o.probe.Exec[1:], Foreign: true})
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%s had not ended after %s, and was killed", o.probe.Exec[0], o.probe.Timeout)
	}
	return err
}

func (o own) http(ctx context.Context) error {
	trust, err := o.trust()
	if err != nil {
		return err
	}
	transport := &http.Transport{Proxy: nil, TLSClientConfig: trust, DisableKeepAlives: true, ForceAttemptHTTP2: true}
	client := http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.probe.HTTP.URL, http.NoBody)
	if err != nil {
		return errors.New("its url can't be read")
	}
	req.Header.Set("User-Agent", "refit-probe")
	resp, err := client.Do(req)
	if err != nil {
		var failed *url.Error // which repeats the address
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return fmt.Errorf("it does not answer: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("it answers %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	return nil
}

// trust returns how a server is verified. What the node trusts is read each time: an update may have changed it, and crypto/x509 reads it
// once in a process.
func (o own) trust() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.probe.HTTP.InsecureSkipVerify {
		config.InsecureSkipVerify = true // the policy says so
		return config, nil
	}
	file := o.probe.HTTP.CAFile
	for i := 0; file == "" && i < len(effect.TrustBundles); i++ {
		if _, err := o.host.Stat(effect.TrustBundles[i]); err == nil {
			file = effect.TrustBundles[i]
		}
	}
	if file == "" {
		return config, nil
	}
	data, state, err := o.host.ReadFile(file)
	switch {
	case err != nil:
		return nil, err
	case !state.Exists:
		return nil, fmt.Errorf("%s is missing", file)
	}
	config.RootCAs = x509.NewCertPool()
	if !config.RootCAs.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s holds no certificate", file)
	}
	return config, nil
}

func (o own) tcp(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", o.probe.TCP)
	if err != nil {
		return err
	}
	return conn.Close()
}

func (o own) unit(ctx context.Context) error {
	if o.host.Units == nil {
		return errors.New("the node has no systemctl in /usr/bin or /bin")
	}
	state, err := o.host.Units.Show(ctx, o.probe.Unit)
	switch {
	case err != nil:
		return err
	case state.Missing():
		return fmt.Errorf("the node does not have %s", o.probe.Unit)
	case !state.Active():
		return fmt.Errorf("%s is %s", o.probe.Unit, state.ActiveState)
	}
	return nil
}

func (o own) condition(ctx context.Context) error {
	c, err := connect(o.host.Root)
	if err != nil {
		return err
	}
	name, err := c.NodeName()
	if err != nil {
		return err
	}
	conditions, err := conditionsOf(ctx, c, name)
	if err != nil {
		return err
	}
	for _, is := range conditions {
		if is.Type != o.probe.Condition.Type {
			continue
		}
		if is.Status == o.probe.Condition.Status {
			return nil
		}
		return fmt.Errorf("%s of the Node is %s: %s", is.Type, is.Status, host.Redact(is.Message))
	}
	return fmt.Errorf("the Node has no condition %s", o.probe.Condition.Type)
}
