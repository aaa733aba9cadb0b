// Package timeline lays out in time what policies permit and freeze, and when what waits is expected to be made. It draws nothing and asks nobody.
package timeline
