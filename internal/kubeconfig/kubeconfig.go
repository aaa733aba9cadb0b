package kubeconfig

import (
	"errors"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// SecretKey is the key of a Secret under which its kubeconfig is, as Cluster API has it.
const SecretKey = "value"

var errContext = errors.New("its current context does not lead to a server and a user that can be used")

// Parse returns the config of the current context of a kubeconfig that came from a Secret. Errors quote nothing of it.
func Parse(data []byte) (*rest.Config, error) {
	_, cfg, err := read(data)
	return cfg, err
}

// Contained returns what Parse reads of a kubeconfig, and no more, for libraries that parse by themselves: what they may know of
// kubeconfigs that this package does not is not in it. It fails when Parse does.
func Contained(data []byte) ([]byte, error) {
	reduced, _, err := read(data)
	if err != nil {
		return nil, err
	}
	out, err := clientcmd.Write(*reduced)
	if err != nil {
		return nil, errors.New("it can't be written as a kubeconfig")
	}
	return out, nil
}

func read(data []byte) (*clientcmdapi.Config, *rest.Config, error) {
	if len(data) == 0 {
		return nil, nil, errors.New("there is no kubeconfig")
	}
	all, err := clientcmd.Load(data)
	if err != nil {
		return nil, nil, errors.New("it can't be read as a kubeconfig")
	}
	if err := selfContained(all); err != nil {
		return nil, nil, err
	}
	reduced, err := reduce(all)
	if err != nil {
		return nil, nil, err
	}
	cfg, err := clientcmd.NewDefaultClientConfig(*reduced, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, nil, errContext
	}
	if !strings.HasPrefix(cfg.Host, "https://") {
		return nil, nil, errors.New("its server is not reached by https")
	}
	return reduced, cfg, nil
}

// selfContained returns why a kubeconfig is refused. All of its users and clusters count, not those of the current context alone.
func selfContained(kubeconfig *clientcmdapi.Config) error {
	for _, user := range kubeconfig.AuthInfos {
		switch {
		case user.Exec != nil:
			return errors.New("it runs a program (exec) for its credentials, which refit does not; put a token or a client certificate into it")
		case user.AuthProvider != nil:
			return errors.New("it has an auth-provider, which refit does not know; put a token or a client certificate into it")
		case user.TokenFile != "" || user.ClientCertificate != "" || user.ClientKey != "":
			return errors.New("it refers to files of credentials, which refit does not read; make it with: kubectl config view --flatten --minify")
		}
	}
	for _, server := range kubeconfig.Clusters {
		switch {
		case server.CertificateAuthority != "":
			return errors.New("it refers to a file of authorities, which refit does not read; make it with: kubectl config view --flatten --minify")
		case server.InsecureSkipTLSVerify:
			return errors.New("it has insecure-skip-tls-verify, and refit shows its credentials to verified servers only; put certificate-authority-data into it")
		}
	}
	return nil
}

// reduce returns the current context of a kubeconfig with the fields that are known to refer to nothing outside it.
func reduce(all *clientcmdapi.Config) (*clientcmdapi.Config, error) {
	current, ok := all.Contexts[all.CurrentContext]
	if !ok {
		return nil, errContext
	}
	server, ok := all.Clusters[current.Cluster]
	if !ok {
		return nil, errContext
	}
	user, ok := all.AuthInfos[current.AuthInfo]
	if !ok {
		return nil, errContext
	}
	const name = "refit"
	out := clientcmdapi.NewConfig()
	out.CurrentContext = name
	out.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	out.Clusters[name] = &clientcmdapi.Cluster{
		Server: server.Server, TLSServerName: server.TLSServerName, CertificateAuthorityData: server.CertificateAuthorityData,
		ProxyURL: server.ProxyURL, DisableCompression: server.DisableCompression,
	}
	out.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: user.ClientCertificateData, ClientKeyData: user.ClientKeyData,
		Token: user.Token, Username: user.Username, Password: user.Password,
		Impersonate: user.Impersonate, ImpersonateUID: user.ImpersonateUID, ImpersonateGroups: user.ImpersonateGroups,
		ImpersonateUserExtra: user.ImpersonateUserExtra,
	}
	return out, nil
}
