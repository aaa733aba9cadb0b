package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// rootModule is this project's own module. All others are nested ones.
const rootModule = "refit"

// moduleDir returns the directory of rootModule, or of one of the nested modules that pin what the lab is built from.
func moduleDir(ctx context.Context, name string) (string, error) {
	if name == rootModule {
		name = filepath.Join("..", "..", "..")
	}
	// The path that the compiler noted is right unless it was trimmed or the checkout has moved since.
	if _, file, _, ok := runtime.Caller(0); ok {
		dir := filepath.Join(filepath.Dir(file), "modules", name)
		if isFile(filepath.Join(dir, "go.mod")) {
			return dir, nil
		}
	}
	out, err := goOutput(ctx, "", "list", "-f", "{{.Dir}}", "github.com/capi-refit/refit/test/lab")
	if err != nil {
		return "", fmt.Errorf("the lab is built from refit's checkout, which was not found: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "modules", name), nil
}

// ModuleDir returns the directory with the source of a module that a program is built of.
func ModuleDir(ctx context.Context, p Program, module string) (string, error) {
	return dependencyDir(ctx, sources[p].module, module)
}

// dependencyDir returns the directory in the module cache that holds module, in the version that the nested module pins.
func dependencyDir(ctx context.Context, nested, module string) (string, error) {
	dir, err := moduleDir(ctx, nested)
	if err != nil {
		return "", err
	}
	// Unlike "go list -m", this also works when programs are cached and the module cache was cleaned since.
	out, err := goOutput(ctx, dir, "mod", "download", "-json", module)
	if err != nil {
		return "", fmt.Errorf("locating %s: %w", module, err)
	}
	var found struct{ Dir string }
	if err := json.Unmarshal(out, &found); err != nil {
		return "", fmt.Errorf("locating %s: %w", module, err)
	}
	return found.Dir, nil
}

func goOutput(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = goEnv()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w: %s%s", strings.Join(args, " "), err, stderr.Bytes(), out)
	}
	return out, nil
}
