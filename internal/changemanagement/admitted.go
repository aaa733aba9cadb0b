package changemanagement

import (
	"context"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/index"
)

// known reports whether the cache knows of a start, or there is none to know of: the MachineUpdate is another one of the name, or the write
// was not answered and has not been made since.
func (g *Gate) known(s start, mu *refitv1.MachineUpdate) bool {
	if mu.UID != s.update || len(mu.Status.Starts) > 0 && !mu.Status.Starts[0].Before(&s.at) {
		return true
	}
	return !s.unsure.IsZero() && g.Clock.Since(s.unsure) > settled
}

// prime reads what another leader may have admitted just before, which a cache may not know yet.
func (g *Gate) prime(ctx context.Context, namespace string) error {
	if g.primed[namespace] {
		return nil
	}
	err := index.EachLive(ctx, g.Live, namespace, func(mu *refitv1.MachineUpdate) error {
		if starts := mu.Restored().Status.Starts; len(starts) > 0 {
			g.remember(client.ObjectKeyFromObject(mu), start{update: mu.UID, at: starts[0]})
		}
		return nil
	})
	if err != nil {
		return err
	}
	if g.primed == nil {
		g.primed = map[string]bool{}
	}
	g.primed[namespace] = true
	return nil
}

// ForgetNamespaces forgets what is known of namespaces in which another process has admitted updates meanwhile.
func (g *Gate) ForgetNamespaces(of func(namespace string) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.primed, func(namespace string, _ bool) bool { return of(namespace) })
	maps.DeleteFunc(g.kept, func(namespace string, _ *books) bool { return of(namespace) })
	maps.DeleteFunc(g.admitted, func(key types.NamespacedName, _ start) bool { return of(key.Namespace) })
}

// remember keeps a start until the cache knows it.
func (g *Gate) remember(key types.NamespacedName, s start) {
	if g.admitted == nil {
		g.admitted = map[types.NamespacedName]start{}
	}
	g.admitted[key] = s
}

// Forget forgets an admission that was taken back before anything was done. mu is as the API server has it: what is not among its
// starts is no start. It can be repeated, and belongs to who may also admit the update.
func (g *Gate) Forget(mu *refitv1.MachineUpdate) {
	g.mu.Lock()
	defer g.mu.Unlock()
	key := client.ObjectKeyFromObject(mu)
	s, ok := g.admitted[key]
	if ok && !slices.ContainsFunc(mu.Status.Starts, func(at metav1.Time) bool { return at.Equal(&s.at) }) {
		delete(g.admitted, key)
	}
}
