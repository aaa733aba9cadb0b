package check

import (
	"crypto/x509"
	"encoding/pem"
	"time"
)

// soon is how long before its end an authority is told of at most.
const soon = 14 * 24 * time.Hour

// tooLate returns how long before its end an authority should have been renewed. Of those that live for weeks it is a sixth of their life: most are renewed
// when a third is left.
func tooLate(cert *x509.Certificate) time.Duration {
	return min(soon, cert.NotAfter.Sub(cert.NotBefore)/6)
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
