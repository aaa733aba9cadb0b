package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Scope bounds where Machines are looked for.
type Scope struct {
	// Namespace is one, or all if it is empty.
	Namespace string
	// Cluster is the name of one, or all if it is empty.
	Cluster string
}

func (s Scope) options() []client.ListOption {
	opts := []client.ListOption{client.InNamespace(s.Namespace)}
	if s.Cluster != "" {
		opts = append(opts, client.MatchingLabels{clusterv1.ClusterNameLabel: s.Cluster})
	}
	return opts
}

// String says where that is.
func (s Scope) String() string {
	where := "any namespace"
	if s.Namespace != "" {
		where = "namespace " + s.Namespace
	}
	if s.Cluster != "" {
		where += " and cluster " + s.Cluster
	}
	return where
}

// FindMachine returns the one Machine of the name, or whose node has the name.
func FindMachine(ctx context.Context, c client.Reader, name string, scope Scope) (*clusterv1.Machine, error) {
	var list clusterv1.MachineList
	if err := c.List(ctx, &list, scope.options()...); err != nil {
		return nil, fmt.Errorf("list Machines in %s: %w", scope, err)
	}
	found := slices.DeleteFunc(list.Items, func(m clusterv1.Machine) bool {
		return m.Name != name && m.Status.NodeRef.Name != name
	})
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("there is no Machine in %s that is named %q or whose node is; `kubectl get machines -A` lists all", scope, name)
	case 1:
		return &found[0], nil
	}
	all := make([]string, len(found))
	for i, m := range found {
		all[i] = fmt.Sprintf("Machine %s/%s of cluster %s", m.Namespace, m.Name, m.Spec.ClusterName)
	}
	slices.Sort(all)
	return nil, fmt.Errorf("%q can be %s; say which with --namespace or --cluster", name, strings.Join(all, ", or "))
}

// maxName bounds the name of a person, so that it fits wherever it is written.
const maxName = 100

// Who returns the name of who asks: given if it is not empty, else whom the API server takes the client for, and if that can't
// be told fallback.
func Who(ctx context.Context, c client.Client, given, fallback string) (string, error) {
	if given != "" {
		if len(given) > maxName || strings.ContainsFunc(given, unprintable) {
			return "", fmt.Errorf("the name %q has more than %d bytes, or characters that are not printed", given, maxName)
		}
		return given, nil
	}
	review := &authenticationv1.SelfSubjectReview{}
	name := fallback
	if err := c.Create(ctx, review); err == nil && review.Status.UserInfo.Username != "" {
		name = review.Status.UserInfo.Username
	}
	if name == "" {
		return "", errors.New("it can't be told who you are; say it with --as-admin")
	}
	return shorten(strings.Map(func(r rune) rune {
		if unprintable(r) {
			return -1
		}
		return r
	}, name)), nil
}

func unprintable(r rune) bool { return r <= ' ' || r == 0x7f || r == '\uFFFD' }

// shorten cuts a name at a character.
func shorten(name string) string {
	if len(name) <= maxName {
		return name
	}
	return strings.ToValidUTF8(name[:maxName], "")
}
