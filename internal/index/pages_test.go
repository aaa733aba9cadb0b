package index

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
)

// paged is an API server that has so many MachineUpdates.
type paged struct {
	client.Reader
	has, asked int
	err        error
}

func (p *paged) List(_ context.Context, obj client.ObjectList, opts ...client.ListOption) error {
	var o client.ListOptions
	o.ApplyOptions(opts)
	p.asked++
	if o.Namespace != "fleet" || o.Limit == 0 {
		return fmt.Errorf("asked for %+v", o)
	}
	from, _ := strconv.Atoi(o.Continue)
	list := obj.(*refitv1.MachineUpdateList)
	for i := from; i < min(p.has, from+int(o.Limit)); i++ {
		var mu refitv1.MachineUpdate
		mu.Name = strconv.Itoa(i)
		list.Items = append(list.Items, mu)
	}
	if to := from + int(o.Limit); to < p.has {
		list.Continue = strconv.Itoa(to)
	}
	return p.err
}

func TestAllArePaged(t *testing.T) {
	for has, pages := range map[int]int{0: 1, 3: 1, page: 1, page + 1: 2, 3 * page: 3} {
		p, seen := &paged{has: has}, map[string]bool{}
		require.NoError(t, EachLive(t.Context(), p, "fleet", func(mu *refitv1.MachineUpdate) error {
			seen[mu.Name] = true
			return nil
		}))
		require.Len(t, seen, has)
		require.Equal(t, pages, p.asked)
	}
	enough := errors.New("enough")
	p := &paged{has: 3 * page}
	require.ErrorIs(t, EachLive(t.Context(), p, "fleet", func(*refitv1.MachineUpdate) error { return enough }), enough)
	require.Equal(t, 1, p.asked)
	p.err = errors.New("no")
	require.ErrorContains(t, EachLive(t.Context(), p, "fleet", nil), "list MachineUpdates in namespace fleet: no")
}
