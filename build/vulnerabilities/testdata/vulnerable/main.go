// Vulnerable calls what the recorded databases say is vulnerable.
package main

import "net/url"

func main() { _, _ = url.Parse("https://example.org") }
