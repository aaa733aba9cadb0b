// Command release does one thing with the agent's store of releases, on the node that it runs on, and serves files for tests.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/capi-refit/refit/internal/agent/host"
	"github.com/capi-refit/refit/internal/agent/release"
	"github.com/capi-refit/refit/internal/node"
)

const usage = "release stage|missing <SOURCE, find VERSION, install VERSION PROGRAM..., prune VERSION..., serve ADDRESS DIRECTORY"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	root := host.Root{Dir: "/", Private: "/var/lib/refit"} // as the agent has it
	store := release.New(host.Host{Root: root, Clock: host.WallClock{}, Units: host.FindSystemctl(root)})
	if len(args) == 0 {
		return errors.New(usage)
	}
	verb, args := args[0], args[1:]
	switch verb {
	case "stage", "missing":
		return ofSource(ctx, store, verb)
	case "prune":
		return store.Prune(args...)
	}
	if len(args) == 0 {
		return errors.New(usage)
	}
	first, args := args[0], args[1:]
	switch verb {
	case "find":
		return printed(store.Find(first))
	case "install":
		note, err := store.Install(ctx, first, args...)
		if note != "" {
			fmt.Println(note)
		}
		return err
	case "serve":
		return serve(ctx, first, strings.Join(args, " "))
	}
	return errors.New(usage)
}

func serve(ctx context.Context, address, dir string) error {
	server := &http.Server{Addr: address, Handler: http.FileServer(http.Dir(dir))}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func ofSource(ctx context.Context, store *release.Store, verb string) error {
	var src node.Source
	if err := json.NewDecoder(os.Stdin).Decode(&src); err != nil {
		return err
	}
	if verb == "missing" {
		return printed(store.Missing(src))
	}
	return store.Stage(ctx, src, false, func(what string) { fmt.Println(what) })
}

func printed(what any, err error) error {
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(what)
}
