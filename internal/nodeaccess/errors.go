package nodeaccess

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// APIError is an error of the management cluster's API, that it is overloaded, say: it says nothing about a NodeAccess or a node.
type APIError struct{ Err error }

// Error implements error.
func (e *APIError) Error() string { return e.Err.Error() }

// Unwrap returns the error.
func (e *APIError) Unwrap() error { return e.Err }

// OfAPI returns an error of reading or writing an object as an APIError. That the object is not there, and that refit is not let have it, is for people to
// mend, and stays as it is.
func OfAPI(err error) error {
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || IsAPI(err) {
		return err
	}
	return &APIError{Err: err}
}

// IsAPI reports whether an error is one of the management cluster's API.
func IsAPI(err error) bool {
	var api *APIError
	return errors.As(err, &api)
}
