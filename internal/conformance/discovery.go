package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"

	"github.com/capi-refit/refit/internal/jsonscan"
)

var (
	inPlaceHooks     = []string{canUpdateMachine, canUpdateMachineSet, updateMachine}
	discoveryPath    = path.Join("/", runtimehooksv1.GroupVersion.String(), "discovery")
	discoveryRequest = []byte(`{"apiVersion":"` + runtimehooksv1.GroupVersion.String() + `","kind":"DiscoveryRequest"}`)
)

// path is where a handler answers. Names that are wrong must not leave its place.
func (h *handler) path() string {
	return path.Join("/", h.RequestHook.APIVersion, strings.ToLower(h.hook()), path.Join("/", h.Name))
}

// discover asks what is served. An error says that nobody answers.
func (r *run) discover(ctx context.Context) error {
	r.discovery = r.caller.post(ctx, discoveryPath, discoveryTimeout, discoveryRequest)
	if r.discovery.err != nil {
		return fmt.Errorf("ask for the extension's handlers: %w", r.discovery.err)
	}
	if r.discovery.code != http.StatusOK || r.discovery.large {
		return r.choose()
	}
	if r.unread = jsonscan.Check(r.discovery.body); r.unread == nil {
		found := &runtimehooksv1.DiscoveryResponse{}
		if r.unread = json.NewDecoder(bytes.NewReader(r.discovery.body)).Decode(found); r.unread == nil {
			r.found = found
		}
	}
	return r.choose()
}

// choose takes the handlers that are asked: the first for each hook, or those that were named.
func (r *run) choose() error {
	missing := slices.Clone(r.chosen)
	taken := map[string]bool{}
	for _, h := range r.discovered() {
		named := slices.Contains(missing, h.Name)
		if !isInPlace(h) || taken[h.RequestHook.Hook] && !named || len(r.chosen) > 0 && !named {
			continue
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == h.Name })
		taken[h.RequestHook.Hook] = true
		r.handlers = append(r.handlers, &handler{ExtensionHandler: h})
	}
	if r.found != nil && len(missing) > 0 {
		return fmt.Errorf("the extension has no handler %q for a hook of in-place updates of %s; those that it has are %q",
			missing[0], runtimehooksv1.GroupVersion, names(r.discovered()))
	}
	return nil
}

func isInPlace(h runtimehooksv1.ExtensionHandler) bool {
	return slices.Contains(inPlaceHooks, h.RequestHook.Hook) && h.RequestHook.APIVersion == runtimehooksv1.GroupVersion.String()
}

// discovered are all handlers of the extension.
func (r *run) discovered() []runtimehooksv1.ExtensionHandler {
	if r.found == nil {
		return nil
	}
	return r.found.Handlers
}

func names(of []runtimehooksv1.ExtensionHandler) []string {
	all := []string{}
	for _, h := range of {
		all = append(all, h.Name)
	}
	return all
}

// looked are the handlers that the laws of discovery are about: all, or those that were named.
func (r *run) looked(v *verdict) []runtimehooksv1.ExtensionHandler {
	all := slices.DeleteFunc(slices.Clone(r.discovered()), func(h runtimehooksv1.ExtensionHandler) bool {
		return len(r.chosen) > 0 && !slices.Contains(r.chosen, h.Name)
	})
	for range all {
		v.saw("handlers")
	}
	if len(all) == 0 {
		v.skip("discovery has shown no handlers")
	}
	return all
}

func checkDiscovery(_ context.Context, r *run, v *verdict) {
	v.saw("answers")
	switch {
	case r.discovery.large:
		v.broken("the answer has more than %d bytes", maxAnswer)
	case r.discovery.code != http.StatusOK:
		v.broken("the answer has the HTTP status %d", r.discovery.code)
	case r.unread != nil:
		v.broken("the answer can't be read: %s", quote(r.unread.Error()))
	case r.found.Status != runtimehooksv1.ResponseStatusSuccess:
		v.broken("the status is %s, with the message %s", quote(string(r.found.Status)), quote(r.found.Message))
	case len(r.found.Handlers) == 0:
		v.broken("there are no handlers")
	}
}

func checkNames(_ context.Context, r *run, v *verdict) {
	seen := map[string]bool{}
	for _, h := range r.looked(v) {
		if problems := validation.IsDNS1123Label(h.Name); len(problems) > 0 {
			v.broken("the name %s: %s", quote(h.Name), problems[0])
		}
		if seen[h.Name] {
			v.broken("two handlers are named %s", quote(h.Name))
		}
		seen[h.Name] = true
	}
}

func checkHooks(_ context.Context, r *run, v *verdict) {
	catalog := runtimecatalog.New()
	if err := runtimehooksv1.AddToCatalog(catalog); err != nil {
		v.skip("the hooks that Cluster API knows can't be read: %v", err) // can't be
		return
	}
	of := map[string][]string{}
	all := r.looked(v)
	for _, h := range all {
		if err := knownHook(catalog, h.RequestHook); err != nil {
			v.broken("handler %s: %v", quote(h.Name), err)
		}
		of[h.RequestHook.Hook] = append(of[h.RequestHook.Hook], h.Name)
	}
	for _, hook := range inPlaceHooks {
		if len(of[hook]) > 1 {
			v.broken("%d handlers are for %s: %q", len(of[hook]), hook, of[hook])
		}
	}
	if len(all) == 0 || len(r.chosen) > 0 {
		return // who names some of the handlers does not ask for the rest
	}
	if len(of[updateMachine]) == 0 {
		v.broken("no handler is for UpdateMachine")
	}
	if len(of[canUpdateMachine])+len(of[canUpdateMachineSet]) == 0 {
		v.broken("no handler is for CanUpdateMachine or CanUpdateMachineSet")
	}
}

func knownHook(catalog *runtimecatalog.Catalog, hook runtimehooksv1.GroupVersionHook) error {
	gv, err := schema.ParseGroupVersion(hook.APIVersion)
	if err != nil {
		return errors.New("the apiVersion of its hook, " + quote(hook.APIVersion) + ", is none")
	}
	if !catalog.IsHookRegistered(runtimecatalog.GroupVersionHook{Group: gv.Group, Version: gv.Version, Hook: hook.Hook}) {
		return fmt.Errorf("its hook %s of %s is not known", quote(hook.Hook), quote(hook.APIVersion))
	}
	return nil
}

func checkFailurePolicy(_ context.Context, r *run, v *verdict) {
	for _, h := range r.looked(v) {
		if isInPlace(h) && h.FailurePolicy != nil && *h.FailurePolicy != runtimehooksv1.FailurePolicyFail {
			v.broken("the failurePolicy of handler %s is %s", quote(h.Name), quote(string(*h.FailurePolicy)))
		}
	}
}

func checkTimeout(_ context.Context, r *run, v *verdict) {
	for _, h := range r.looked(v) {
		if t := h.TimeoutSeconds; t != nil && (*t < 1 || *t > int32(longest.Seconds())) {
			v.broken("the timeoutSeconds of handler %s is %d", quote(h.Name), *t)
		}
	}
}
