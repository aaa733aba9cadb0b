package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/capi-refit/refit/internal/audit"
)

const auditExample = `  # Is the log as it was written?
  refit audit verify audit.jsonl

  # All of its files, the oldest first
  refit audit verify audit.jsonl.0* audit.jsonl

  # The last one only, which begins with entry 4711
  refit audit verify --from 4711 audit.jsonl`

func newAuditCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Look at the log of what was sent to nodes"}
	cmd.AddCommand(newAuditVerifyCommand())
	return cmd
}

func newAuditVerifyCommand() *cobra.Command {
	var from int64
	cmd := &cobra.Command{
		Use:   "verify FILE...",
		Short: "Say whether an audit log is as it was written",
		Long: `Checks that each line of the log follows from the one before: that none was changed, removed, inserted or moved. What was cut
off at the end leaves no trace in the files, so that the last number and hash are shown: compare them with those that were
noted elsewhere.`,
		Example: auditExample,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return verifyAudit(cmd.InOrStdin(), cmd.OutOrStdout(), args, from)
		},
	}
	cmd.Flags().Int64Var(&from, "from", 1, "Number of the first entry. It is 1 unless older files are left out.")
	return cmd
}

func verifyAudit(stdin io.Reader, out io.Writer, names []string, from int64) error {
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
	r, err := audit.Verify(files...)
	printReport(out, r)
	switch {
	case err != nil:
		return fmt.Errorf("the log is broken: %w", err)
	case r.Entries == 0:
		return fmt.Errorf("there is no entry in %s", names[0])
	case r.First != from:
		return fmt.Errorf("the log begins with entry %d, and entry %d was expected; give the files before it as well, or say --from %d if they are left out on purpose", r.First, from, r.First)
	}
	return nil
}

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
	if r.Interrupted > 0 {
		say("%d writes were interrupted; what they have left is between the entries", r.Interrupted)
	}
	if r.Pending {
		say("the last line is not complete: it is being written, or refit has crashed and not been started since")
		return // the hash covers what may still grow
	}
	say("the last one is %d, with hash %s", r.Head.Seq, r.Head.Hash)
}
