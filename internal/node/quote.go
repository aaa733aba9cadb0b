package node

import "strings"

// quote makes s one word for a POSIX shell, and for csh and fish as far as s has no backslash, quote or "!".
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
