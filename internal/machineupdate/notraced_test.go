//go:build !race

package machineupdate

const raced = false
