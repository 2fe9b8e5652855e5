package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/talos-factory/talos-factory/signing/verify"
)

func verifyCommand() *cobra.Command {
	var keyFile string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify FILE... --key KEY",
		Short: "Check a published file's checksum, signature, provenance and SBOM",
		Long: `Verify checks each file by what lies beside it:

  FILE.sha256            its checksum
  FILE.sigstore.json     its signature, a Sigstore bundle
  FILE.provenance.json   from what and by whom it was made, signed
  FILE.spdx.json         what is in it; the provenance has its digest
  SHA256SUMS             the signed list of a release, if there is one

KEY is a public key or a certificate in PEM, such as cosign.pub of a set of keys. Nothing is fetched. The exit status is 0 only if nothing
is missing or wrong. cosign verifies the same signatures:

  cosign verify-blob --key KEY --bundle FILE.sigstore.json --new-bundle-format --insecure-ignore-tlog --trusted-root ROOT FILE

where ROOT is a file with {"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}: it asks for one even with a key.`,
		Example: `  factory verify _out/metal-amd64.raw --key keys/cosign.pub
  factory verify _out/*.raw --key keys/cosign.pub --json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || keyFile == "" {
				return withHint(errors.New("cannot verify without a file and a key"), "factory verify _out/metal-amd64.raw --key keys/cosign.pub")
			}
			key, err := readKey(keyFile)
			if err != nil {
				return err
			}
			var reports []verify.Report
			for _, path := range args {
				report, err := verify.File(cmd.Context(), path, key)
				if err != nil {
					return err
				}
				reports = append(reports, report)
			}
			if err := printReports(cmd.OutOrStdout(), reports, asJSON); err != nil {
				return err
			}
			return refusal(reports)
		},
	}
	cmd.Flags().StringVar(&keyFile, "key", "", "`FILE` with the public key or certificate that signatures must be of")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func readKey(path string) (*verify.Key, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading key: %w", err)
	}
	key, err := verify.ParseKey(text)
	if err != nil {
		return nil, withHint(fmt.Errorf("reading key %s: %w", path, err), "give --key the file cosign.pub of a set of keys")
	}
	return key, nil
}

func printReports(w io.Writer, reports []verify.Report, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(reports)
	}
	for _, r := range reports {
		fmt.Fprintf(w, "%s\nsha256 %s\n\n", r.Artifact, r.SHA256)
		table := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
		fmt.Fprintln(table, "CHECK\tRESULT\tFILE\tDETAIL")
		for _, c := range r.Checks {
			result, detail := "good", ""
			if !c.OK {
				result, detail = "BAD", c.Detail
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", c.Name, result, c.File, detail)
		}
		if err := table.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	return nil
}

// refusal names what is missing or wrong.
func refusal(reports []verify.Report) error {
	var bad []string
	for _, r := range reports {
		var names []string
		for _, c := range r.Checks {
			if !c.OK {
				names = append(names, c.Name)
			}
		}
		if len(names) > 0 {
			bad = append(bad, r.Artifact+": "+strings.Join(names, ", "))
		}
	}
	if len(bad) == 0 {
		return nil
	}
	return withHint(fmt.Errorf("cannot trust %s", strings.Join(bad, "; ")), "get it again with everything that was published beside it, and make sure of the key")
}
