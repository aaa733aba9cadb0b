package agent

import (
	"context"
	"errors"

	"github.com/capi-refit/refit/internal/agent/host"
)

// trustStores are the programs that put certificate authorities together, on one system or another.
var trustStores = []host.Command{
	{Name: "update-ca-certificates"},                     // Debian, SUSE, Flatcar
	{Name: "update-ca-trust", Args: []string{"extract"}}, // Red Hat
}

// findTrustStore returns how the node's trust store is updated.
func (a *Agent) findTrustStore() (host.Command, error) {
	for _, c := range trustStores {
		if a.root.Program(c.Name) != "" {
			return c, nil
		}
	}
	return host.Command{}, errors.New("the node has neither update-ca-certificates nor update-ca-trust, by one of which its trust store is updated")
}

// updateTrustStore has programs that are started from now on trust the certificate authorities that the files name.
func (a *Agent) updateTrustStore(ctx context.Context) error {
	c, err := a.findTrustStore()
	if err != nil {
		return err
	}
	_, err = a.root.RunTelling(ctx, c)
	return err
}
