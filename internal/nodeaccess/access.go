// Package nodeaccess finds how the node of a Machine is reached: the NodeAccess that selects it, the addresses, keys and certificates
// that follow from that, and the host key that was seen first.
package nodeaccess

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
)

// Keys of Secrets where a NodeAccess names none.
const (
	defaultPrivateKey = "ssh-privatekey"
	defaultKnownHosts = "known_hosts"
	defaultHostCA     = "ca.pub"
)

// Access is how the node of a Machine is reached.
type Access struct {
	Target remote.Target
	// Digest is one of all that Target was made of, and of the Machine.
	Digest string
	spec   refitv1.NodeAccessSpec
}

// SecretFunc returns the value of a key of a Secret.
type SecretFunc func(name, key string) ([]byte, error)

// Find returns the one NodeAccess that selects the Machine.
func Find(ctx context.Context, reader client.Reader, machine *clusterv1.Machine) (*refitv1.NodeAccess, error) {
	var list refitv1.NodeAccessList
	if err := reader.List(ctx, &list, client.InNamespace(machine.Namespace)); err != nil {
		return nil, OfAPI(fmt.Errorf("list NodeAccesses: %w", err))
	}
	return Select(list.Items, machine)
}

// Select returns the one NodeAccess of a namespace that selects the Machine.
func Select(all []refitv1.NodeAccess, machine *clusterv1.Machine) (*refitv1.NodeAccess, error) {
	var selected []refitv1.NodeAccess
	for _, na := range all {
		ok, err := Selects(&na, machine)
		if err != nil {
			return nil, err
		}
		if ok {
			selected = append(selected, na)
		}
	}
	switch len(selected) {
	case 0:
		return nil, fmt.Errorf("no NodeAccess in namespace %s selects Machine %s, so %w; create one", machine.Namespace, machine.Name, ErrNone)
	case 1:
		return &selected[0], nil
	}
	names := make([]string, len(selected))
	for i, na := range selected {
		names[i] = na.Name
	}
	slices.Sort(names)
	return nil, fmt.Errorf("the NodeAccesses %s all select Machine %s; narrow their clusterName or machineSelector so that one does", strings.Join(names, ", "), machine.Name)
}

// Selects reports whether a NodeAccess of its namespace selects a Machine.
func Selects(na *refitv1.NodeAccess, machine *clusterv1.Machine) (bool, error) {
	if na.Spec.ClusterName != "" && na.Spec.ClusterName != machine.Spec.ClusterName {
		return false, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(&na.Spec.MachineSelector)
	if err != nil {
		return false, fmt.Errorf("NodeAccess %s: spec.machineSelector: %w", na.Name, err)
	}
	return selector.Matches(labels.Set(machine.Labels)), nil
}

// Resolve reads what a NodeAccess refers to. With TrustOnFirstUse, recorded is the host key of the first contact,
// and record keeps a new one.
func Resolve(na *refitv1.NodeAccess, machine *clusterv1.Machine, secret SecretFunc, recorded string, record remote.RecordFunc) (*Access, error) {
	fail := func(field string, err error) (*Access, error) {
		return nil, fmt.Errorf("NodeAccess %s: %s: %w", na.Name, field, err)
	}
	addresses, err := addressesOf(machine, na.Spec)
	if err != nil {
		return nil, err
	}
	within, err := parseCIDRs(na.Spec.AddressCIDRs)
	if err != nil {
		return fail("spec.addressCIDRs", err)
	}
	if addresses, err = bound(addresses, within, na.Spec.SSH.JumpHost != nil); err != nil {
		return fail("spec.addressCIDRs", err)
	}
	ssh := na.Spec.SSH
	secret, digest := digesting(secret, na, machine.UID, na.Spec, addresses, recorded)
	hostKeys, err := resolveHostKeys(ssh.HostKeys, secret, recorded, record)
	if err != nil {
		return fail("spec.ssh.hostKeys", err)
	}
	a := &Access{spec: na.Spec, Target: remote.Target{Addresses: addresses, User: ssh.User, HostKeys: hostKeys, Within: within}}
	if field, err := authenticate(&a.Target, ssh.PrivateKeySecretRef, ssh.UserCertificate, certificateOf(ssh, machine), secret); err != nil {
		return fail("spec.ssh."+field, err)
	}
	if j := ssh.JumpHost; j != nil {
		secret, shared := digesting(secret, na, j)
		hostKeys, err := resolveHostKeys(j.HostKeys, secret, "", nil)
		if err != nil {
			return fail("spec.ssh.jumpHost.hostKeys", err)
		}
		a.Target.Jump = &remote.Target{
			Addresses: []remote.Address{{Host: j.Address, Port: int(j.Port)}}, User: j.User, HostKeys: hostKeys,
		}
		o := remote.CertificateOptions{KeyID: "refit:" + na.Namespace + "/" + na.Name, JumpHost: true}
		if field, err := authenticate(a.Target.Jump, j.PrivateKeySecretRef, j.UserCertificate, o, secret); err != nil {
			return fail("spec.ssh.jumpHost."+field, err)
		}
		if sameAuthority(a.Target) {
			return fail("spec.ssh.jumpHost.userCertificate", errors.New("the jump host needs an authority of its own, which nodes don't trust: "+
				"with the nodes' its certificates could forward connections on the nodes"))
		}
		a.Target.Jump.Shared = shared()
	}
	a.Digest = digest()
	return a, nil
}

// digesting returns what reads Secrets, and a digest of what it has read and of how a NodeAccess has a host be reached: who differs in either
// has a connection of their own.
func digesting(secret SecretFunc, na *refitv1.NodeAccess, how ...any) (SecretFunc, func() string) {
	h := sha256.New()
	add := func(part []byte) { _, _ = fmt.Fprintf(h, "%d %s", len(part), part) }
	add([]byte(na.Namespace + "/" + na.Name))
	for _, part := range how {
		text, _ := json.Marshal(part)
		add(text)
	}
	reads := func(name, key string) ([]byte, error) {
		data, err := secret(name, key)
		add(data)
		return data, err
	}
	return reads, func() string { return fmt.Sprintf("%x", h.Sum(nil)) }
}

// Client returns the agent at the other end of a connection that was made by the Access.
func (a *Access) Client(conn remote.Conn, agents *remote.Agents) (*remote.Client, error) {
	s := a.spec.SSH
	return remote.NewClient(conn, remote.ClientOptions{Agents: agents, Dir: a.spec.AgentDirectory, Sudo: s.Sudo, Gate: gateMode(s)})
}

// Login returns how refit logs in to the node: no update may close that way.
func (a *Access) Login() node.Login {
	signers := slices.Clone(a.Target.Signers)
	if s, err := ssh.ParsePrivateKey(a.Target.PrivateKey); err == nil { // what is wrong with it, the connection tells
		signers = append(signers, s)
	}
	l := node.Login{User: a.Target.User, Gate: gateMode(a.spec.SSH)}
	if c := a.Target.Certificates; c != nil {
		l.Keys = append(l.Keys, c.Authority()) // sshd may trust it by authorized_keys
		l.Command = c.ForceCommand()
	}
	for _, s := range signers {
		key := s.PublicKey()
		if c, ok := key.(*ssh.Certificate); ok {
			key = c.Key // a certificate itself is in no authorized_keys
		}
		l.Keys = append(l.Keys, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key))))
	}
	return l
}

func resolveHostKeys(h refitv1.HostKeys, secret SecretFunc, recorded string, record remote.RecordFunc) (remote.HostKeys, error) {
	if h.Policy == refitv1.HostKeyTrustOnFirstUse {
		return remote.TrustOnFirstUse(recorded, record)
	}
	if h.SecretRef == nil {
		return nil, fmt.Errorf("policy %s needs a secretRef", h.Policy)
	}
	defaultKey := defaultKnownHosts
	if h.Policy == refitv1.HostKeyCertificateAuthority {
		defaultKey = defaultHostCA
	}
	data, err := secret(h.SecretRef.Name, cmp.Or(h.SecretRef.Key, defaultKey))
	if err != nil {
		return nil, err
	}
	switch h.Policy {
	case refitv1.HostKeyPinned:
		return remote.KnownHosts(data)
	case refitv1.HostKeyCertificateAuthority:
		return remote.HostAuthorities(data)
	default:
		return nil, fmt.Errorf("unknown policy %q", h.Policy)
	}
}

func parseCIDRs(texts []string) ([]netip.Prefix, error) {
	var within []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is not a range of addresses such as 10.0.0.0/8", text)
		}
		within = append(within, p)
	}
	return within, nil
}

// bound returns those of the addresses that the ranges of a NodeAccess let refit connect to, or all if there are none. What a name
// leads to is looked at when it is connected to; behind a jump host that can't be, so names are left out.
func bound(addresses []remote.Address, within []netip.Prefix, jump bool) ([]remote.Address, error) {
	if len(within) == 0 {
		return addresses, nil
	}
	var in []remote.Address
	var out []string
	for _, a := range addresses {
		_, err := netip.ParseAddr(a.Host)
		if name := err != nil; name && !jump || remote.Within(within, a.Host) {
			in = append(in, a)
		} else {
			out = append(out, a.Host)
		}
	}
	if len(in) > 0 {
		return in, nil
	}
	return nil, fmt.Errorf("the node's addresses (%s) are in none of these ranges, so refit does not connect to them; names don't count behind a jump host", strings.Join(out, ", "))
}

// addressesOf returns where the Machine's node may be reached, in order.
func addressesOf(machine *clusterv1.Machine, spec refitv1.NodeAccessSpec) ([]remote.Address, error) {
	port := int(cmp.Or(spec.SSH.Port, 22))
	if text, ok := machine.Annotations[refitv1.AddressAnnotation]; ok {
		if spec.SSH.HostKeys.Policy == refitv1.HostKeyTrustOnFirstUse {
			return nil, fmt.Errorf("the annotation %s of Machine %s is not taken with TrustOnFirstUse: any host there would be trusted, and be brought what is meant for the node; "+
				"have the NodeAccess use Pinned or CertificateAuthority, or take the annotation away", refitv1.AddressAnnotation, machine.Name)
		}
		a, err := remote.ParseAddress(text)
		if err != nil {
			return nil, fmt.Errorf("the annotation %s of Machine %s: %w", refitv1.AddressAnnotation, machine.Name, err)
		}
		if _, _, err := net.SplitHostPort(text); err != nil {
			a.Port = port // the annotation names none
		}
		return []remote.Address{a}, nil
	}
	types := spec.AddressTypes
	if len(types) == 0 {
		types = []clusterv1.MachineAddressType{
			clusterv1.MachineInternalIP, clusterv1.MachineExternalIP, clusterv1.MachineInternalDNS, clusterv1.MachineHostName,
		}
	}
	var out []remote.Address
	for _, t := range types {
		for _, a := range machine.Status.Addresses {
			if a.Type == t && a.Address != "" {
				out = append(out, remote.Address{Host: a.Address, Port: port})
			}
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the Machine has no address of the types that its NodeAccess takes; set the annotation " + refitv1.AddressAnnotation)
	}
	return out, nil
}
