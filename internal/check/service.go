package check

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// inquiry is who asks a Service: what a finding about it says, with what becomes of it if nobody answers.
type inquiry struct{ check, object, then, do string }

func (a inquiry) mistake(format string, args ...any) []Finding {
	return []Finding{{Check: a.check, Level: Error, Object: a.object, Message: fmt.Sprintf(format, args...) + ": " + a.then, Do: a.do}}
}

// defaultPort is the one that is asked where none is named.
const defaultPort = 443

// namePort is what to do where an API server asks another Service, or another port, than refit's.
const namePort = "name the Service of refit's Deployment, and its port admission"

// port looks whether a Service is there and has a port, which it returns.
func (c *Checker) port(ctx context.Context, a inquiry, key client.ObjectKey, number int32) (*corev1.ServicePort, []Finding) {
	var s corev1.Service
	switch err := c.Client.Get(ctx, key, &s); {
	case apierrors.IsNotFound(err):
		return nil, a.mistake("it asks Service %s, which is not there", key)
	case err != nil:
		return nil, []Finding{unknown(a.check, a.object, err)}
	}
	i := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == number })
	if i < 0 {
		return nil, a.mistake("it asks port %d of Service %s, which has none of that number", number, key)
	}
	return &s.Spec.Ports[i], nil
}

// webhooksService looks whether the Service is there that an API server asks; nothing is found if it is, or if it asks a URL.
func (c *Checker) webhooksService(ctx context.Context, a inquiry, ref *admissionregistrationv1.ServiceReference) []Finding {
	if ref == nil {
		return nil
	}
	_, found := c.port(ctx, a, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, ptr.Deref(ref.Port, defaultPort))
	return found
}

// extensionsService looks whether somebody answers at the Service of an ExtensionConfig; nothing is found if so, or if Cluster API asks a URL.
func (c *Checker) extensionsService(ctx context.Context, check string, e *runtimev1.ExtensionConfig) []Finding {
	ref := e.Spec.ClientConfig.Service
	if !ref.IsDefined() {
		return nil
	}
	a := inquiry{
		check: check, object: nameOf("ExtensionConfig", e), then: "Cluster API waits for an answer, and no machine is updated or replaced",
		do: "name the Service of refit's Deployment, and its port hooks",
	}
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	port, found := c.port(ctx, a, key, ptr.Deref(ref.Port, defaultPort))
	if port == nil {
		return found
	}
	var list discoveryv1.EndpointSliceList
	if err := c.Client.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: key.Name}); err != nil {
		return []Finding{unknown(check, a.object, err)}
	}
	if !slices.ContainsFunc(list.Items, func(s discoveryv1.EndpointSlice) bool { return answers(&s, port.Name) }) {
		a.do = "see that refit's pods are ready, that the Service selects them, and that its targetPort is one of theirs"
		return a.mistake("port %d of Service %s has no endpoint that is ready", port.Port, key)
	}
	return nil
}

// answers reports whether an endpoint is ready that has the port of a name.
func answers(s *discoveryv1.EndpointSlice, port string) bool {
	return slices.ContainsFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return ptr.Deref(p.Name, "") == port && p.Port != nil }) &&
		slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return ptr.Deref(e.Conditions.Ready, true) })
}
