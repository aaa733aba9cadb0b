package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode/utf8"
)

// MaxObserved is how long the value of an annotation may be, in characters, to be recorded as it is when it is acted upon.
const MaxObserved = 256

// Observed returns what is recorded of an annotation whose value was acted upon: the value, or the beginning of a long one with a digest of
// all of it, so that no other value looks the same.
func Observed(value string) string {
	if utf8.RuneCountInString(value) <= MaxObserved {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	digest := "… sha256:" + hex.EncodeToString(sum[:])
	return strings.ToValidUTF8(value[:MaxObserved-len(digest)], "") + digest
}

// RetryRequest returns the try that is asked for, as it is recorded when it is acted upon; "" if none is.
func (mu *MachineUpdate) RetryRequest() string { return Observed(mu.Annotations[RetryAnnotation]) }

// AbandonRequest returns the same of an abandonment.
func (mu *MachineUpdate) AbandonRequest() string { return Observed(mu.Annotations[AbandonAnnotation]) }

// DriftRequest returns the same of a comparison.
func (mu *MachineUpdate) DriftRequest() string { return Observed(mu.Annotations[CheckDriftAnnotation]) }
