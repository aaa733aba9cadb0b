// Package engine talks to a Docker engine: the user's, or a private one for machines that need more privileges than the user's
// engine can give.
package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Engine is a Docker engine by its address, as in DOCKER_HOST. The zero value is the one that the user has set up, with its
// context and credentials.
type Engine struct{ Host string }

// Run runs the docker command and returns what it writes.
func (e Engine) Run(ctx context.Context, stdin io.Reader, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.Env = append(os.Environ(), e.Env()...)
	cmd.WaitDelay = 5 * time.Second
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = stdin, &stderr
	out, err := cmd.Output()
	if err != nil {
		text := bytes.TrimSpace(stderr.Bytes())
		return out, fmt.Errorf("docker %s: %w: %s", args[0], err, text[max(0, len(text)-500):])
	}
	return out, nil
}

// Env is what a program has to have in its environment to use the engine.
func (e Engine) Env() []string {
	if e.Host == "" {
		return nil
	}
	return []string{"DOCKER_HOST=" + e.Host, "DOCKER_CONTEXT="}
}

// Resolve returns the same engine with an address, for programs that know DOCKER_HOST but no contexts.
func (e Engine) Resolve(ctx context.Context) (Engine, error) {
	if e.Host != "" || os.Getenv("DOCKER_HOST") != "" {
		return e, nil
	}
	out, err := e.Run(ctx, nil, "context", "inspect", "--format", "{{.Endpoints.docker.Host}}")
	if err != nil {
		return Engine{}, err
	}
	return Engine{Host: strings.TrimSpace(string(out))}, nil
}

// Answers says why the engine can't be used, or nil.
func (e Engine) Answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute) // a busy machine's takes its time; one that is not there says so at once
	defer cancel()
	out, err := e.Run(ctx, nil, "info", "--format", "{{.OSType}}")
	if err != nil {
		return err
	}
	if system := strings.TrimSpace(string(out)); system != "linux" {
		return fmt.Errorf("its containers are %q, not Linux", system)
	}
	return nil
}

// HasImage reports whether an image is there already.
func (e Engine) HasImage(ctx context.Context, image string) bool {
	_, err := e.Run(ctx, nil, "image", "inspect", "--format", "{{.Id}}", image)
	return err == nil
}

// probeImage has nothing but a program that ends at once.
const probeImage = "refit-probe:latest"

// Privileged says why the engine can't run privileged containers, or nil. It runs one that has nothing but a program, which is
// to end at once. Several processes must not do this at the same time.
func (e Engine) Privileged(ctx context.Context, program []byte, args ...string) (err error) {
	var root bytes.Buffer
	archive := tar.NewWriter(&root)
	err = archive.WriteHeader(&tar.Header{Name: "probe", Mode: 0o755, Size: int64(len(program))})
	if err == nil {
		_, err = archive.Write(program)
	}
	if err = errors.Join(err, archive.Close()); err != nil {
		return fmt.Errorf("packing a program to try: %w", err)
	}
	remove := func() error {
		_, err := e.Run(context.WithoutCancel(ctx), nil, "image", "rm", "--force", probeImage)
		return err
	}
	if e.HasImage(ctx, probeImage) { // left by a process that was killed
		if err := remove(); err != nil {
			return err
		}
	}
	if _, err := e.Run(ctx, &root, "import", "-", probeImage); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	_, err = e.Run(ctx, nil, append([]string{"run", "--rm", "--privileged", "--network", "none", probeImage, "/probe"}, args...)...)
	return err
}

// Remove removes the containers that a filter of `docker ps` names, with their anonymous volumes.
func (e Engine) Remove(ctx context.Context, filter ...string) error {
	args := []string{"ps", "--all", "--quiet", "--no-trunc"}
	for _, f := range filter {
		args = append(args, "--filter", f)
	}
	out, err := e.Run(ctx, nil, args...)
	if err != nil || len(bytes.TrimSpace(out)) == 0 {
		return err
	}
	_, err = e.Run(ctx, nil, append([]string{"rm", "--force", "--volumes"}, strings.Fields(string(out))...)...)
	return err
}
