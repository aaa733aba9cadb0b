package workload

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
)

// ErrUnavailable is returned when there is no connection to a workload cluster. Wait, and get it again.
var ErrUnavailable = errors.New("the workload cluster can't be reached")

// IsUnavailable reports whether an error of Get, or of a call to a workload cluster, means that its API server does not answer now,
// so that waiting may help. A server that can't prove who it is, or that refuses, is another matter.
func IsUnavailable(err error) bool {
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) || errors.Is(err, context.Canceled) {
		return false
	}
	for _, known := range []error{ErrUnavailable, clustercache.ErrClusterNotConnected, context.DeadlineExceeded} {
		if errors.Is(err, known) {
			return true
		}
	}
	for _, is := range []func(error) bool{
		apierrors.IsServiceUnavailable, apierrors.IsServerTimeout, apierrors.IsTimeout, apierrors.IsTooManyRequests,
	} {
		if is(err) {
			return true
		}
	}
	var network net.Error
	return errors.As(err, &network)
}
