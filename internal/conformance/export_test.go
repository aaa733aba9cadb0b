package conformance

// Huge makes the body that is too large smaller, for extensions of tests that take less. The others have to be asked with the real one.
func (s *Suite) Huge(bytes int) { s.huge = bytes }
