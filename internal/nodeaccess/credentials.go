package nodeaccess

import (
	"cmp"
	"errors"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	refitv1 "github.com/capi-refit/refit/api/v1alpha1"
	"github.com/capi-refit/refit/internal/node"
	"github.com/capi-refit/refit/internal/node/remote"
)

// gateMode reports whether refit comes in to a node by its gate.
func gateMode(s refitv1.SSHAccess) bool {
	return s.Mode == refitv1.SSHGate || certified(s.UserCertificate)
}

func certified(c refitv1.UserCertificate) bool { return c.CAKeySecretRef.Name != "" }

// authenticate has a target log in by the key or the certificates of a NodeAccess. It returns the field in which something is wrong.
func authenticate(t *remote.Target, key refitv1.SecretKeyReference, c refitv1.UserCertificate, o remote.CertificateOptions, secret SecretFunc) (field string, err error) {
	switch {
	case certified(c) == (key.Name != ""):
		return "privateKeySecretRef", errors.New("exactly one of privateKeySecretRef and userCertificate is needed")
	case key.Name != "":
		t.PrivateKey, err = secret(key.Name, cmp.Or(key.Key, defaultPrivateKey))
		return "privateKeySecretRef", err
	}
	authority, err := secret(c.CAKeySecretRef.Name, cmp.Or(c.CAKeySecretRef.Key, defaultPrivateKey))
	if err != nil {
		return "userCertificate.caKeySecretRef", err
	}
	o.Principal, o.Sources = cmp.Or(c.Principal, t.User), c.SourceAddresses
	t.Certificates, err = remote.NewUserCertificates(authority, o)
	return "userCertificate", err
}

// sameAuthority reports whether one key signs the certificates for the node and for its jump host, in whichever Secrets it is.
func sameAuthority(t remote.Target) bool {
	return t.Certificates != nil && t.Jump.Certificates != nil && t.Certificates.Authority() == t.Jump.Certificates.Authority()
}

// certificateOf returns what is in the certificates for the node of a Machine.
func certificateOf(s refitv1.SSHAccess, machine *clusterv1.Machine) remote.CertificateOptions {
	command := node.DefaultGate
	if s.Sudo {
		command = "sudo -n " + command
	}
	return remote.CertificateOptions{KeyID: keyID(machine), ForceCommand: cmp.Or(s.UserCertificate.ForceCommand, command)}
}

// keyID is what the sshd of the node logs.
func keyID(machine *clusterv1.Machine) string {
	return "refit:" + machine.Namespace + "/" + machine.Name
}
