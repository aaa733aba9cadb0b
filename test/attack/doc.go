// Package attack holds the tests that attack refit as a hostile caller, tenant, node user or operator would.
package attack
