package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/capi-refit/refit/webhook"
)

const clientNamesFlag = "client-names"

// clientFlags say whom hooks are answered.
type clientFlags struct {
	caFile string
	names  []string
	flags  *pflag.FlagSet
}

func (f *clientFlags) add(fs *pflag.FlagSet) {
	f.flags = fs
	fs.StringVar(&f.caFile, "client-ca-file", "", "File with the authorities of client certificates, which managers must then show (their --runtime-extension-client-cert-file). It is read again when it changes. Unset: none are asked for.")
	fs.StringSliceVar(&f.names, clientNamesFlag, nil, "DNS names or URIs, one of which a client certificate must have as subject alternative name, exactly as it is given here. Unset: any certificate of the authorities in --client-ca-file is accepted.")
}

// required reports whether clients must show a certificate.
func (f *clientFlags) required() bool { return f.caFile != "" }

// options returns the options for the TLS configuration that have hooks answered to the accepted clients only. ctx bounds the
// watch of the authorities' file.
func (f *clientFlags) options(ctx context.Context) ([]func(*tls.Config), error) {
	given := f.flags.Changed(clientNamesFlag)
	if !f.required() {
		if given {
			return nil, errors.New("--client-names is given without --client-ca-file, so that no client would be asked for a certificate: give both or neither")
		}
		return nil, nil
	}
	ca, err := webhook.ClientCA(ctx, f.caFile)
	if err != nil {
		return nil, fmt.Errorf("--client-ca-file: %w", err)
	}
	options := []func(*tls.Config){ca}
	if given {
		names, err := webhook.ClientNames(f.names)
		if err != nil {
			return nil, fmt.Errorf("--client-names: %w; leave it out to accept any certificate of the authorities", err)
		}
		options = append(options, names)
	}
	return options, nil
}

// report says in the log and in a metric whom hooks are answered.
func (f *clientFlags) report(log logr.Logger, r prometheus.Registerer) {
	webhook.NewClientCertificatesRequired(r, f.required())
	switch {
	case !f.required():
		log.Info("Hooks are answered to anybody who reaches their port: nothing but a NetworkPolicy keeps others than Cluster API's managers out. " +
			"Client certificates are asked for with --client-ca-file")
	case len(f.names) == 0:
		log.Info("Hooks are answered to clients with any certificate of the authorities. --client-names bounds whom they are for", "authorities", f.caFile)
	default:
		log.Info("Hooks are answered to clients with a certificate of the authorities for one of the names", "authorities", f.caFile, "names", f.names)
	}
}
