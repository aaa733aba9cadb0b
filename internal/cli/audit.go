package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/internal/audit"
)

const auditExample = `  # Is the log as it was written?
  refit audit verify audit.jsonl

  # All of its files, the oldest first
  refit audit verify audit.jsonl.0* audit.jsonl

  # The last one only, which begins with entry 4711
  refit audit verify --from 4711 audit.jsonl

  # Is all of it there, by the heads that refit has published?
  kubectl get configmap refit-audit-heads -n refit-system -o yaml |
    refit audit verify --head - --public-key refit-audit.pub audit.jsonl`

func newAuditCommand() *cobra.Command {
	return subcommands(&cobra.Command{Use: "audit", Short: "Look at the log of what was sent to nodes"}, newAuditVerifyCommand())
}

func newAuditVerifyCommand() *cobra.Command {
	var o verifyOptions
	cmd := &cobra.Command{
		Use:   "verify FILE...",
		Short: "Report whether an audit log is as it was written",
		Long: `Checks that each line of the log follows from the one before: that none was changed, removed, inserted or moved. What was cut
off at the end leaves no trace in the files, nor does another log that holds together: with --head the log is compared with a head
that refit has published and signed. Without it the last number and hash are shown, to compare them with those that were noted
elsewhere.

The exit status is 0 if the log is as it was written, and 1 if it is not, or if that can't be told.`,
		Example: auditExample,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.verify(cmd.InOrStdin(), cmd.OutOrStdout(), args)
		},
	}
	fs := cmd.Flags()
	fs.Int64Var(&o.from, "from", 1, "Number of the first entry. It is 1 unless older files are left out.")
	fs.StringVar(&o.head, "head", "", "File with the head that the log has to contain: the ConfigMap refit-audit-heads as YAML or JSON, or one head of it. - is stdin.")
	fs.StringVar(&o.publicKey, "public-key", "", "File with the public key by which heads have to be signed, in PEM or as refit logs it. --head needs it.")
	fs.StringVar(&o.log, "log", "", "Name of the log, the pod's, among several heads. Unset: the one that was written by the same instance of refit.")
	return cmd
}

// verifyOptions say what a log has to be.
type verifyOptions struct {
	from                 int64
	head, publicKey, log string
}

func (o verifyOptions) verify(stdin io.Reader, out io.Writer, names []string) error {
	published, err := o.published(stdin, names)
	if err != nil {
		return err
	}
	var files []audit.File
	for _, name := range names {
		if name == "-" {
			files = append(files, audit.File{Name: name, Reader: stdin})
			continue
		}
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		files = append(files, audit.File{Name: name, Reader: file})
	}
	check := audit.Verify
	if published != nil {
		check = published.Verify
	}
	r, err := check(files...)
	printReport(out, r)
	switch {
	case err != nil:
		return fmt.Errorf("the log is broken: %w", err)
	case len(r.Lost) > 0:
		return fmt.Errorf("the log is broken: entry %d tells that what was there before it was cut off or replaced, see what is \"lost\" in it", r.Lost[0])
	case r.Entries == 0:
		return fmt.Errorf("there is no entry in %s", names[0])
	case r.First != o.from:
		return fmt.Errorf("the log begins with entry %d, and entry %d was expected; give the files before it as well, or say --from %d if they are left out on purpose", r.First, o.from, r.First)
	}
	return nil
}

// published returns the heads that the log is to be compared with, or nil if it is not.
func (o verifyOptions) published(stdin io.Reader, names []string) (*audit.Published, error) {
	switch {
	case o == verifyOptions{from: o.from}:
		return nil, nil
	case o.head == "":
		return nil, errors.New("--public-key and --log say something about --head, which is missing")
	case o.publicKey == "":
		return nil, errors.New("--head needs --public-key: whoever can change a log could write a head for it")
	case o.head == "-" && slices.Contains(names, "-"):
		return nil, errors.New("stdin can be the head or the log, and not both")
	}
	p := &audit.Published{Log: o.log}
	data, err := os.ReadFile(o.publicKey)
	if err != nil {
		return nil, err
	}
	if p.Key, err = audit.ParsePublicKey(data); err != nil {
		return nil, fmt.Errorf("--public-key: %w", err)
	}
	if data, err = readOrStdin(stdin, o.head); err != nil {
		return nil, err
	}
	if p.Heads, err = audit.ParseHeads(data); err != nil {
		return nil, fmt.Errorf("--head: %w", err)
	}
	return p, nil
}

func readOrStdin(stdin io.Reader, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(io.LimitReader(stdin, maxHeads))
	}
	return os.ReadFile(name)
}

// maxHeads is how large a ConfigMap with heads can be, in bytes: an API server takes no larger object than 3 MiB.
const maxHeads = 4 << 20

func printReport(out io.Writer, r audit.Report) {
	if r.Entries == 0 {
		return
	}
	say := func(format string, args ...any) {
		fmt.Fprintf(out, format+"\n", args...) //nolint:errcheck // it is for people; the exit status is what counts
	}
	say("%d entries hold together, number %d to %d, from %s to %s", r.Entries, r.First, r.Head.Seq, r.From.Format(time.RFC3339), r.To.Format(time.RFC3339))
	if n := len(r.Unfinished); n > 0 {
		say("%d commands have no end: they are under way, or refit ended first; the last one is entry %d", n, r.Unfinished[n-1])
	}
	for _, h := range r.Heads {
		say("it has entry %d, which log %s had on %s by its signed head", h.Seq, h.Log, h.Time.UTC().Format(time.RFC3339))
	}
	if r.Interrupted > 0 {
		say("%d writes were interrupted; what they have left is between the entries", r.Interrupted)
	}
	if r.Pending {
		say("the last line is not complete: it is being written, or refit has crashed and not been started since")
		return // the hash covers what may still grow
	}
	say("the last one is %d, with hash %s", r.Head.Seq, r.Head.Hash)
}
