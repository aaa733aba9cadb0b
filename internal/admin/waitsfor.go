package admin

import "cmp"

// WaitsFor says what an update waits for, by the reason in its status: "for a window".
func WaitsFor(reason string) string {
	return cmp.Or(waits[reason], "("+cmp.Or(oneLine(reason), "it does not say why")+")")
}
