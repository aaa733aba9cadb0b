package check

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	runtimev1 "sigs.k8s.io/cluster-api/api/runtime/v1beta2"
)

// soon is how long before its end an authority is told of at most.
const soon = 14 * 24 * time.Hour

// tooLate returns how long before its end an authority should have been renewed. Of those that live for weeks it is a sixth of their life: most are renewed
// when a third is left.
func tooLate(cert *x509.Certificate) time.Duration {
	return min(soon, cert.NotAfter.Sub(cert.NotBefore)/6)
}

// injectors are the annotations by which somebody writes the caBundle, and who that is.
var injectors = map[string]string{ //nolint:gosec // the names of annotations are no credentials
	runtimev1.InjectCAFromSecretAnnotation:  "Cluster API copies it out of Secret %s: see that this is there, and has a ca.crt",
	"cert-manager.io/inject-ca-from":        "cert-manager's CA injector copies it from Certificate %s: see that this is ready, and that the injector knows ExtensionConfigs",
	"cert-manager.io/inject-ca-from-secret": "cert-manager's CA injector copies it out of Secret %s: see that this is there, and that the injector knows ExtensionConfigs",
}

// extensionsAuthority looks at the authorities by which Cluster API verifies who answers. An operator may not read Secrets, so that what is in them is not compared.
func (c *Checker) extensionsAuthority(e *runtimev1.ExtensionConfig) Finding {
	f := c.authority(nameOf("ExtensionConfig", e), e.Spec.ClientConfig.CABundle)
	if f.Level == Good {
		return f
	}
	f.Do = "no annotation says who writes the caBundle: add " + runtimev1.InjectCAFromSecretAnnotation + ", or write it yourself"
	for _, annotation := range slices.Sorted(maps.Keys(injectors)) {
		from, ok := e.Annotations[annotation]
		if !ok {
			continue
		}
		f.Do = fmt.Sprintf(injectors[annotation], from)
		if namespace, name, _ := strings.Cut(from, "/"); namespace == "" || name == "" {
			f.Do = fmt.Sprintf("its annotation %s is %q: write NAMESPACE/NAME", annotation, from)
		}
	}
	return f
}

// authority looks at the authorities by which an object has refit's certificate verified.
func (c *Checker) authority(object string, bundle []byte) Finding {
	const check = "certificate"
	var last x509.Certificate
	for rest := bundle; ; {
		block, more := pem.Decode(rest)
		if block == nil {
			break
		}
		rest = more
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil && cert.NotAfter.After(last.NotAfter) {
			last = *cert
		}
	}
	do := "see to cert-manager's CA injector (its annotation), or write the caBundle yourself"
	end := last.NotAfter.UTC().Format(time.RFC3339)
	switch left := last.NotAfter.Sub(c.Clock.Now()); {
	case last.NotAfter.IsZero():
		return Finding{Check: check, Level: Error, Object: object, Message: "it has no certificate of an authority in its caBundle", Do: do}
	case left <= 0:
		return Finding{Check: check, Level: Error, Object: object, Message: "the authority in its caBundle ended at " + end, Do: do}
	case left < tooLate(&last):
		return Finding{Check: check, Level: Warning, Object: object, Message: "the authority in its caBundle ends at " + end, Do: do}
	}
	return good(check, object, "its authority is good until "+end)
}
