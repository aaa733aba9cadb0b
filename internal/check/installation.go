package check

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"

	"github.com/capi-refit/refit/config/crd"
)

const (
	install  = "install refit as docs/install.md says"
	own      = "app.kubernetes.io/name"
	provider = clusterv1.ProviderNameLabel
)

// definitions looks whether refit's kinds are defined as this version of refit knows them.
func (c *Checker) definitions(ctx context.Context) []Finding {
	const check = "definitions"
	files, err := crd.Bases.ReadDir("bases")
	if err != nil {
		return []Finding{unknown(check, "", err)}
	}
	var all []Finding
	for _, file := range files {
		data, err := crd.Bases.ReadFile(path.Join("bases", file.Name()))
		var want, have apiextensionsv1.CustomResourceDefinition
		if err == nil {
			err = yaml.Unmarshal(data, &want)
		}
		if err == nil {
			err = c.Client.Get(ctx, client.ObjectKeyFromObject(&want), &have)
		}
		object := nameOf("CustomResourceDefinition", &want)
		switch {
		case apierrors.IsNotFound(err):
			all = append(all, Finding{Check: check, Level: Error, Object: object, Message: "it is not there", Do: install})
		case err != nil:
			all = append(all, unknown(check, object, err))
		case !sameVersions(&want, &have):
			all = append(all, Finding{Check: check, Level: Warning, Object: object, Message: "it is not the one of this version of refit", Do: "apply config/crd of the version that runs, or ask with the command of that version"})
		}
	}
	if len(all) == 0 {
		all = append(all, good(check, "", fmt.Sprintf("the %d kinds of refit are there", len(files))))
	}
	return all
}

// sameVersions reports whether the schemas are the same. What API servers fill in is not in them.
func sameVersions(want, have *apiextensionsv1.CustomResourceDefinition) bool {
	schemas := func(o *apiextensionsv1.CustomResourceDefinition) string {
		all := map[string]any{}
		for _, v := range o.Spec.Versions {
			all[v.Name] = v.Schema
		}
		text, err := json.Marshal(all)
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	return schemas(want) == schemas(have)
}

// asked are the hooks that Cluster API asks for an update in place.
var asked = []string{"CanUpdateMachine", "CanUpdateMachineSet", "UpdateMachine"}

// readExtensions returns the ExtensionConfigs that have one of the hooks, and refit's, of which nobody knows its hooks until it is discovered.
func (c *Checker) readExtensions(ctx context.Context) ([]runtimev1.ExtensionConfig, error) {
	var list runtimev1.ExtensionConfigList
	if err := c.Client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("list ExtensionConfigs: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(e runtimev1.ExtensionConfig) bool {
		return e.Labels[own] != "refit" && e.Labels[provider] != "runtime-extension-refit" && !slices.ContainsFunc(e.Status.Handlers, func(h runtimev1.ExtensionHandler) bool {
			return slices.Contains(asked, h.RequestHook.Hook)
		})
	}), nil
}

// extension looks whether Cluster API knows refit, and nobody else for the same hooks.
func (c *Checker) extension(ctx context.Context) []Finding {
	const check = "extension"
	found, err := c.extensions, c.extensionsErr
	if err != nil {
		return []Finding{unknown(check, "", err)}
	}
	if len(found) == 0 {
		return []Finding{{Check: check, Level: Error, Message: "there is no ExtensionConfig with the hooks of updates in place, so that Cluster API replaces machines", Do: install}}
	}
	var all, services []Finding
	for i := range found {
		e := &found[i]
		all = append(all, discovered(check, e), c.extensionsAuthority(e))
		services = append(services, c.extensionsService(ctx, check, e)...)
	}
	// Whether all handlers are known does not depend on who answers now.
	return slices.Concat(all, c.answers(check, Worst(all) != Error), services)
}

// answers looks whether each hook has one handler where Cluster API asks. known says that the handlers that are known are all there are.
func (c *Checker) answers(check string, known bool) []Finding {
	none, many := map[string][]string{}, map[string][]string{} // the namespaces, by what is wrong there
	for namespace, extensions := range c.askedIn() {
		no, more := handlers(extensions)
		if no != "" && known {
			none[no] = append(none[no], namespace)
		}
		if more != "" && namespace != "" {
			many[more] = append(many[more], namespace)
		}
	}
	var all []Finding
	for hooks, namespaces := range none {
		all = append(all, Finding{Check: check, Level: Error, Message: "nobody answers " + hooks + in(namespaces) + ", so that Cluster API replaces machines",
			Do: "see that the ExtensionConfig is of this version of refit, and nobody else answers at its address"})
	}
	for hooks, namespaces := range many {
		all = append(all, Finding{Check: check, Level: Error, Message: "hooks have more than one handler" + in(namespaces) + ", and Cluster API takes one: " + hooks,
			Do: "remove the other ExtensionConfig, or give the two namespaceSelectors that have no namespace in common"})
	}
	return all
}

// askedIn returns which ExtensionConfigs Cluster API asks in each namespace with Clusters, or in each at all as long as there are none. Where it asks
// in none they are all under "".
func (c *Checker) askedIn() map[string][]*runtimev1.ExtensionConfig {
	out := map[string][]*runtimev1.ExtensionConfig{}
	used := inNamespaces(c.clusters)
	for i := range c.extensions {
		for _, name := range c.selectedBy(&c.extensions[i]) {
			if len(used) == 0 || used[name] != nil {
				out[name] = append(out[name], &c.extensions[i])
			}
		}
	}
	if len(out) == 0 {
		for i := range c.extensions {
			out[""] = append(out[""], &c.extensions[i])
		}
	}
	return out
}

// handlers returns the hooks that no ExtensionConfig answers, and those that more than one does, with their handlers.
func handlers(extensions []*runtimev1.ExtensionConfig) (none, many string) {
	by := map[string][]string{}
	for _, e := range extensions {
		for _, h := range e.Status.Handlers {
			by[h.RequestHook.Hook] = append(by[h.RequestHook.Hook], h.Name)
		}
	}
	var no, more []string
	for _, hook := range asked {
		switch len(by[hook]) {
		case 0:
			no = append(no, hook)
		case 1:
		default:
			more = append(more, fmt.Sprintf("%s (%s)", hook, some(by[hook])))
		}
	}
	return strings.Join(no, ", "), strings.Join(more, "; ")
}

// in says in which namespaces something is so.
func in(namespaces []string) string {
	if len(namespaces) == 1 && namespaces[0] == "" {
		return ""
	}
	return " in namespaces " + some(namespaces)
}

func discovered(check string, e *runtimev1.ExtensionConfig) Finding {
	object := nameOf("ExtensionConfig", e)
	c := meta.FindStatusCondition(e.Status.Conditions, runtimev1.ExtensionConfigDiscoveredCondition)
	switch {
	case c == nil:
		return Finding{Check: check, Level: Error, Object: object, Message: "Cluster API has not looked at it", Do: "see that Cluster API's core manager runs, with the feature gate RuntimeSDK"}
	case c.Status != "True":
		return Finding{Check: check, Level: Error, Object: object, Message: "it is not discovered: " + c.Message, Do: "see that refit's pods are ready, and that its certificate is signed by the caBundle"}
	}
	for _, h := range e.Status.Handlers {
		if h.FailurePolicy == runtimev1.FailurePolicyIgnore {
			return Finding{Check: check, Level: Error, Object: object, Message: "handler " + h.Name + " has failurePolicy Ignore: while refit is away Cluster API replaces machines",
				Do: "let refit say the failurePolicy, which is Fail"}
		}
	}
	return good(check, object, "it is discovered; the control plane's manager learns of one a moment later")
}

// OwnDeployments returns refit's Deployments in a management cluster.
func OwnDeployments(ctx context.Context, c client.Reader) ([]appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	if err := c.List(ctx, &list, client.MatchingLabels{own: "refit"}); err != nil {
		return nil, fmt.Errorf("list the Deployments of refit: %w", err)
	}
	return list.Items, nil
}

// deployment looks at refit's own Deployment.
func (c *Checker) deployment(ctx context.Context) []Finding {
	const check = "refit"
	deployments, err := OwnDeployments(ctx, c.Client)
	if err != nil {
		return []Finding{unknown(check, "", err)}
	}
	if len(deployments) == 0 {
		return []Finding{{Check: check, Level: Warning, Message: "there is no Deployment of refit here", Do: "if it does not run elsewhere, " + install}}
	}
	var all []Finding
	for i := range deployments {
		d := &deployments[i]
		object := nameOf("Deployment", d)
		switch {
		case d.Status.AvailableReplicas == 0:
			all = append(all, Finding{Check: check, Level: Error, Object: object, Message: "none of its pods is available", Do: "kubectl describe pods -n " + d.Namespace})
		case ptr.Deref(d.Spec.Replicas, 1) < 2:
			all = append(all, Finding{Check: check, Level: Warning, Object: object, Message: "it has one replica: Cluster API's managers do not start while refit does not answer", Do: "set replicas to 2"})
		case d.Status.AvailableReplicas < ptr.Deref(d.Spec.Replicas, 1):
			all = append(all, Finding{Check: check, Level: Warning, Object: object, Message: fmt.Sprintf("%d of its %d pods are available", d.Status.AvailableReplicas, ptr.Deref(d.Spec.Replicas, 1)),
				Do: "kubectl describe pods -n " + d.Namespace})
		default:
			all = append(all, good(check, object, fmt.Sprintf("%d of its pods are available", d.Status.AvailableReplicas)))
		}
		all = append(all, callers(d))
	}
	return all
}

// watched looks whether refit works in the namespaces that Cluster API asks it about.
func (c *Checker) watched(ctx context.Context, unasked map[string]bool) []Finding {
	const check = "refit"
	deployments, err := OwnDeployments(ctx, c.Client)
	if err != nil || len(deployments) == 0 {
		return nil // which was told
	}
	var only []string
	for i := range deployments {
		values := valuesOf(&deployments[i], "namespace")
		if len(values) == 0 || values[len(values)-1] == "" {
			return nil // all of them
		}
		only = append(only, values[len(values)-1])
	}
	var all []Finding
	for namespace := range inNamespaces(c.clusters) {
		if !unasked[namespace] && !slices.Contains(only, namespace) {
			all = append(all, Finding{Check: check, Level: Error, Object: "Namespace " + namespace, Message: "refit watches namespace " + some(slices.Clone(only)) + " alone, so that no machine is updated here",
				Do: "start refit without --namespace, or with one Deployment of it for each namespace, or leave the label of the ExtensionConfig away"})
		}
	}
	return all
}

func callers(d *appsv1.Deployment) Finding {
	const check = "callers"
	object := nameOf("Deployment", d)
	for _, c := range d.Spec.Template.Spec.Containers {
		if slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--client-ca") }) {
			return good(check, object, "hooks are answered to clients with an accepted certificate")
		}
	}
	return Finding{Check: check, Level: Warning, Object: object, Message: "hooks are answered to anybody who reaches the port",
		Do: "keep others from it by a NetworkPolicy that is enforced, or ask for client certificates: docs/install.md"}
}
