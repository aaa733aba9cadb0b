package registered

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/inplace"
)

// +kubebuilder:rbac:groups=capi-refit.dev,resources=updaterregistrations,verbs=get;list;watch
// +kubebuilder:rbac:groups=capi-refit.dev,resources=updaterregistrations/status,verbs=update
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get

// Registry has the extensions that are registered.
type Registry struct {
	// Client reads registrations, Clusters and the metadata of Namespaces from a cache.
	Client client.Reader
	// Live reads Secrets.
	Live client.Reader
	// Namespace is refit's own, where the Secrets with client certificates are.
	Namespace string

	mu      sync.Mutex
	callers map[string]kept // by the name of the registration
}

// kept is a caller, by what it was made from.
type kept struct {
	key    [sha256.Size]byte
	caller *caller
}

// Subject is the machine for which updaters are looked for.
type Subject struct {
	inplace.Subject
	// Infrastructure is the kind of its infrastructure machine. AnyInfrastructure says that it is not known, so that no registration is left out for it.
	Infrastructure    string
	AnyInfrastructure bool
	// Becomes are the labels that it is to have, where it is asked who makes a change. A selector has to match these, too: the update goes by the
	// labels that the machine has then, be they these or still those of before, and has to call whoever has claimed. Nil: they do not change.
	Becomes map[string]string
}

// Basis returns what changes when the registrations do, or what was discovered, or for which of them the machine is: labels of its Cluster and of its Namespace
// decide that, too.
func (r *Registry) Basis(ctx context.Context, s Subject) (string, error) {
	all, err := r.list(ctx)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i := range all {
		u := &all[i]
		selects, err := r.selects(ctx, &u.Spec, s)
		_, _ = fmt.Fprintf(&b, "%s/%d/%+v/%t/%t/%v ", u.UID, u.Generation, u.Status.Handlers, discovered(u), selects, err) // a Builder takes everything
	}
	return b.String(), nil
}

// For returns the updaters that are registered for a machine, in the order in which they are asked. One that can't be asked is among them, and
// says so when it is.
func (r *Registry) For(ctx context.Context, s Subject) ([]*Remote, error) {
	selected, err := r.selected(ctx, s)
	var out []*Remote
	for i := range selected {
		out = append(out, r.remote(ctx, &selected[i]))
	}
	return out, err
}

// selected returns the registrations that are for a machine, in the order in which they are asked; none with an error.
func (r *Registry) selected(ctx context.Context, s Subject) ([]refitv1.UpdaterRegistration, error) {
	all, err := r.list(ctx)
	if err != nil {
		return nil, err
	}
	var out []refitv1.UpdaterRegistration
	for i := range all {
		selects, err := r.selects(ctx, &all[i].Spec, s)
		switch {
		case err != nil:
			return nil, &Fault{Updater: all[i].Name, Err: err}
		case selects:
			out = append(out, all[i])
		}
	}
	return out, nil
}

func (r *Registry) list(ctx context.Context) ([]refitv1.UpdaterRegistration, error) {
	var all refitv1.UpdaterRegistrationList
	if err := r.Client.List(ctx, &all); err != nil {
		return nil, fmt.Errorf("list UpdaterRegistrations: %w", err)
	}
	slices.SortFunc(all.Items, func(a, b refitv1.UpdaterRegistration) int {
		return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(a.Name, b.Name))
	})
	return all.Items, nil
}

// selects reports whether a registration is for a machine. An error says that it may be, and why it is not known: what else it selects by is of the machine.
func (r *Registry) selects(ctx context.Context, spec *refitv1.UpdaterRegistrationSpec, s Subject) (bool, error) { //nolint:cyclop // a table: one selector after the other
	if len(spec.InfrastructureKinds) > 0 && !s.AnyInfrastructure && !slices.Contains(spec.InfrastructureKinds, s.Infrastructure) ||
		len(spec.BootstrapKinds) > 0 && !slices.Contains(spec.BootstrapKinds, s.Bootstrap.Kind) {
		return false, nil
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	var unknown []error
	for _, part := range []struct {
		field    string
		selector *metav1.LabelSelector
		of       func() (map[string]string, error)
	}{
		{"machineSelector", &spec.MachineSelector, func() (map[string]string, error) { return s.Labels, nil }},
		{"clusterSelector", &spec.ClusterSelector, func() (map[string]string, error) {
			return r.labels(ctx, &clusterv1.Cluster{}, client.ObjectKey{Namespace: s.Namespace, Name: s.Cluster})
		}},
		{"namespaceSelector", &spec.NamespaceSelector, func() (map[string]string, error) {
			return r.labels(ctx, namespace, client.ObjectKey{Name: s.Namespace})
		}},
	} {
		selector, err := metav1.LabelSelectorAsSelector(part.selector)
		if err != nil {
			unknown = append(unknown, fmt.Errorf("spec.%s: %w", part.field, err))
			continue
		}
		if selector.Empty() {
			continue
		}
		of, err := part.of()
		if err != nil {
			unknown = append(unknown, err)
			continue
		}
		if !selector.Matches(labels.Set(of)) {
			return false, nil
		}
		if part.selector == &spec.MachineSelector && s.Becomes != nil && !selector.Matches(labels.Set(s.Becomes)) {
			return false, nil
		}
	}
	if len(unknown) > 0 {
		return false, unknown[0]
	}
	return true, nil
}

// checkSelectors returns an error that names the first selector that can't be read.
func checkSelectors(spec *refitv1.UpdaterRegistrationSpec) error {
	for _, part := range []struct {
		field    string
		selector *metav1.LabelSelector
	}{{"machineSelector", &spec.MachineSelector}, {"clusterSelector", &spec.ClusterSelector}, {"namespaceSelector", &spec.NamespaceSelector}} {
		if _, err := metav1.LabelSelectorAsSelector(part.selector); err != nil {
			return fmt.Errorf("spec.%s: %w", part.field, err)
		}
	}
	return nil
}

func (r *Registry) labels(ctx context.Context, obj client.Object, key client.ObjectKey) (map[string]string, error) {
	if err := r.Client.Get(ctx, key, obj); err != nil {
		return nil, fmt.Errorf("whether it selects the machine is not known: %w", err)
	}
	return obj.GetLabels(), nil
}

// remote returns what asks the extension of a registration.
func (r *Registry) remote(ctx context.Context, u *refitv1.UpdaterRegistration) *Remote {
	out := &Remote{
		name: u.Name, disturbs: u.Spec.Disturbs, handlers: u.Status.Handlers,
		timeout: max(time.Second, time.Duration(u.Spec.TimeoutSeconds)*time.Second),
	}
	if out.caller, out.broken = r.caller(ctx, u); out.broken == nil && !discovered(u) {
		why := "nothing has asked it yet"
		if c := meta.FindStatusCondition(u.Status.Conditions, refitv1.UpdaterReady); c != nil && c.ObservedGeneration == u.Generation {
			why = c.Message
		}
		out.broken = errors.New("its handlers are not known: " + why)
	}
	return out
}

// discovered reports whether the handlers are known that the spec asks for, be the extension there now or not.
func discovered(u *refitv1.UpdaterRegistration) bool {
	return u.Status.ObservedGeneration == u.Generation && u.Status.Handlers.UpdateMachine != ""
}

// caller returns what calls an extension: the one of before, unless how it is called has changed.
func (r *Registry) caller(ctx context.Context, u *refitv1.UpdaterRegistration) (*caller, error) {
	var secret corev1.Secret
	if ref := u.Spec.ClientConfig.ClientCertificate; ref != nil {
		if err := r.Live.Get(ctx, client.ObjectKey{Namespace: r.Namespace, Name: ref.Name}, &secret); err != nil {
			return nil, fmt.Errorf("spec.clientConfig.clientCertificate: %w", err)
		}
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%s %d %q %q", u.UID, u.Generation, secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]))
	r.mu.Lock()
	defer r.mu.Unlock()
	if k, ok := r.callers[u.Name]; ok && k.key == key {
		return k.caller, nil
	}
	var certificate *tls.Certificate
	if u.Spec.ClientConfig.ClientCertificate != nil {
		pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
		if err != nil {
			return nil, fmt.Errorf("spec.clientConfig.clientCertificate: the Secret %s/%s has no certificate with its key in tls.crt and tls.key", r.Namespace, secret.Name)
		}
		certificate = &pair
	}
	c, err := newCaller(&u.Spec.ClientConfig, certificate)
	if err != nil {
		return nil, err
	}
	if before, ok := r.callers[u.Name]; ok {
		before.caller.http.CloseIdleConnections()
	}
	if r.callers == nil {
		r.callers = map[string]kept{}
	}
	r.callers[u.Name] = kept{key, c}
	return c, nil
}

// forget lets go of the caller of a registration that is gone.
func (r *Registry) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k, ok := r.callers[name]; ok {
		k.caller.http.CloseIdleConnections()
		delete(r.callers, name)
	}
}
