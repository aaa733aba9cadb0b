package agent

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"strings"

	"github.com/capi-refit/refit/internal/node"
)

const usage = "refit-node [--root DIR] version|plan|stage|apply|status|drift|journal|run|stage-run|resume|gate"

// The verbs of what goes on without whoever has asked for it.
const (
	verbRun      = "run"
	verbStageRun = "stage-run"
	verbResume   = "resume"
)

// Main carries out one command line and returns the exit status: 0 if it could be carried out, also if the run that it
// tells about has failed, and 1 if not. What it writes to stdout is one node.Answer, or the journal.
func Main(ctx context.Context, cfg Config, args []string, stdin io.Reader, stdout io.Writer) int {
	var ans node.Answer
	err := guard(func() (err error) {
		ans, err = command(ctx, cfg, args, stdin, stdout)
		return err
	})
	if err != nil {
		ans = node.Answer{Error: asAgentError(err)}
	}
	if ans != (node.Answer{}) {
		if json.NewEncoder(stdout).Encode(ans) != nil {
			return 1
		}
	}
	if ans.Error != nil {
		return 1
	}
	return 0
}

func command(ctx context.Context, cfg Config, args []string, stdin io.Reader, stdout io.Writer) (node.Answer, error) {
	flags := flag.NewFlagSet("refit-node", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&cfg.Root, "root", cfg.Root, "the directory that everything on the node is under")
	if err := flags.Parse(args); err != nil {
		return node.Answer{}, invalidf("%v; usage: %s", err, usage)
	}
	if flags.NArg() != 1 {
		return node.Answer{}, invalidf("exactly one command is expected, not %q; usage: %s",
			strings.Join(flags.Args(), " "), usage)
	}
	a, err := New(cfg)
	if err != nil {
		return node.Answer{}, err
	}
	switch name := flags.Arg(0); name {
	case "version":
		id, err := a.Identity()
		return node.Answer{Identity: &id}, err
	case "journal":
		return node.Answer{}, a.Journal(stdout)
	case verbRun:
		status, err := a.Run(ctx)
		return node.Answer{Status: &status}, err
	case verbResume:
		return node.Answer{}, a.Resume(ctx)
	case verbStageRun:
		status, err := a.RunStage(ctx)
		return node.Answer{Stage: &status}, err
	case "plan", "apply", "status", "drift", "stage":
		return converse(ctx, a, name, stdin)
	default:
		return node.Answer{}, invalidf("unknown command %q; usage: %s", name, usage)
	}
}

// converse carries out the commands that read a request.
func converse(ctx context.Context, a *Agent, name string, stdin io.Reader) (node.Answer, error) {
	switch name {
	case "status":
		var req node.StatusRequest
		if err := decode(stdin, &req); err != nil {
			return node.Answer{}, err
		}
		status, err := a.Status(ctx, req)
		return node.Answer{Status: &status}, err
	case "drift":
		var req node.DriftRequest
		if err := decode(stdin, &req); err != nil {
			return node.Answer{}, err
		}
		report, err := a.Drift(ctx, req)
		return node.Answer{Drift: &report}, err
	case "stage":
		var req node.StageRequest
		if err := decode(stdin, &req); err != nil {
			return node.Answer{}, err
		}
		status, err := a.Stage(ctx, req)
		return node.Answer{Stage: &status}, err
	}
	var req node.Request
	if err := decode(stdin, &req); err != nil {
		return node.Answer{}, err
	}
	if name == "plan" {
		plan, err := a.Plan(ctx, req)
		return node.Answer{Plan: &plan}, err
	}
	status, err := a.Apply(ctx, req)
	return node.Answer{Status: &status}, err
}
