//go:build !linux

package engine

import "errors"

func detach(string) error { return errors.ErrUnsupported }
