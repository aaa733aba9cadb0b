package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/disruption"
)

// trustStore is a program that puts certificate authorities together, on one system or another, and the directory that it alone reads.
type trustStore struct {
	host.Command
	dir string
}

var trustStores = []trustStore{
	{host.Command{Name: "update-ca-certificates"}, "/usr/local/share/ca-certificates"},             // Debian, SUSE, Flatcar
	{host.Command{Name: "update-ca-trust", Args: []string{"extract"}}, "/etc/pki/ca-trust/source"}, // Red Hat
}

// findTrustStores returns how the node's trust store is updated for changed files: by the programs that read them. For files that are no
// program's own it is the first program that the node has.
func (a *Agent) findTrustStores(files []string) ([]host.Command, error) {
	var mine []host.Command
	for _, s := range trustStores {
		i := slices.IndexFunc(files, func(f string) bool { return isWithin(f, []string{s.dir}) })
		switch {
		case i < 0:
		case a.root.Program(s.Name) == "":
			return nil, fmt.Errorf("the node has no %s, which reads %s", s.Name, files[i])
		default:
			mine = append(mine, s.Command)
		}
	}
	if len(mine) > 0 {
		return mine, nil
	}
	for _, s := range trustStores {
		if a.root.Program(s.Name) != "" {
			return []host.Command{s.Command}, nil
		}
	}
	return nil, errors.New("the node has neither update-ca-certificates nor update-ca-trust, by one of which its trust store is updated")
}

// updateTrustStore has programs that are started from now on trust the certificate authorities that the files name.
func (a *Agent) updateTrustStore(ctx context.Context) error {
	w, err := a.state.loadWork()
	if err != nil {
		return err
	}
	stores, err := a.findTrustStores(filesOf(w, disruption.TrustStoreUpdate))
	if err != nil {
		return err
	}
	for _, c := range stores {
		if _, err := a.root.RunTelling(ctx, c); err != nil {
			return err
		}
	}
	return nil
}
