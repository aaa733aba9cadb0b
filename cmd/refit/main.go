// refit updates Cluster API machines in place.
package main

import "github.com/capi-refit/refit/internal/cli"

// version is stamped by the build.
var version = "dev"

func main() { cli.Main(version) }
