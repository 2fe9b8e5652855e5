package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/talos-factory/talos-factory/signing"
)

// passphraseEnv is where the passphrase of key files may stand; as an argument others could read it.
const passphraseEnv = "FACTORY_KEYS_PASSPHRASE"

// keyFlags are those of every command that opens keys.
type keyFlags struct{ passphraseFile string }

func (f *keyFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.passphraseFile, "passphrase-file", "", "`FILE` with the passphrase of the private keys (default: $"+passphraseEnv+")")
}

// passphrase is the one given, without the line end of its file, or nil.
func (f *keyFlags) passphrase() (signing.Secret, error) {
	if f.passphraseFile == "" {
		if text := os.Getenv(passphraseEnv); text != "" {
			return signing.Secret(text), nil
		}
		return nil, nil
	}
	text, err := os.ReadFile(f.passphraseFile)
	if err != nil {
		return nil, fmt.Errorf("reading passphrase: %w", err)
	}
	text = bytes.TrimRight(text, "\r\n")
	if len(text) == 0 {
		return nil, fmt.Errorf("cannot use an empty passphrase: %s has none", f.passphraseFile)
	}
	return signing.Secret(text), nil
}

// openSet opens a release's keys.
func (f *keyFlags) openSet(ctx context.Context, uri string) (*signing.Set, error) {
	passphrase, err := f.passphrase()
	if err != nil {
		return nil, err
	}
	set, err := signing.OpenSet(ctx, uri, signing.Options{Passphrase: passphrase})
	return set, keyHint(err)
}

// keyHint adds the likely right command to an error about keys.
func keyHint(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, signing.ErrNoSet):
		return withHint(err, "factory keys generate --output DIR")
	case errors.Is(err, signing.ErrExists):
		return withHint(err, "name a new folder with --output DIR; keys that are lost cannot be made again")
	case errors.Is(err, signing.ErrPassphrase):
		return withHint(err, "--passphrase-file FILE, or $%s", passphraseEnv)
	case errors.Is(err, signing.ErrScheme):
		return withHint(err, "run a signer for it that listens on a socket (api/signer/signer.proto), and name it as unix:/run/signer.sock")
	}
	return err
}

func keysCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "Make a set of signing keys, and show what is in one",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(keysGenerate(), keysShow())
	return cmd
}

func keysGenerate() *cobra.Command {
	var f keyFlags
	var output, name string
	cmd := &cobra.Command{
		Use:   "generate --output DIR",
		Short: "Make a set of signing keys in a new folder",
		Long: `Generate makes the keys that sign a release: of UKIs, of PCR policies and of images and files (cosign), and PK.auth, KEK.auth
and db.auth, which enroll them in a machine's firmware. The private keys are encrypted if a passphrase is given. Nothing is
overwritten.

They are good for development. For releases let an HSM or a vault hold them, and name it in a keys.yaml:

  uki: unix:/run/uki-signer.sock
  pcr: unix:/run/pcr-signer.sock
  cosign: unix:/run/cosign-signer.sock`,
		Example: `  factory keys generate --output keys
  factory keys generate --output keys --passphrase-file passphrase`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output == "" {
				return withHint(errors.New("cannot generate keys without a folder for them"), "factory keys generate --output keys")
			}
			passphrase, err := f.passphrase()
			if err != nil {
				return err
			}
			if err := (signing.Plan{Name: name, Passphrase: passphrase}).Generate(output); err != nil {
				return keyHint(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), keepingKeys, output, protection(passphrase))
			return err
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().StringVar(&output, "output", "", "`DIR` to make")
	cmd.Flags().StringVar(&name, "name", "Talos Factory development", "what the certificates' names begin with")
	return cmd
}

const keepingKeys = `%[1]s has a new set of keys, %[2]s.

  PK-key.pem, KEK-key.pem   change which keys a machine trusts: take them off this machine now, they are needed for rotation only
  uki-signing-key.pem       whoever has it boots anything on machines that enrolled db.auth
  pcr-signing-key.pem       whoever has it unseals disks bound to its policy
  cosign.key                whoever has it publishes images in your name
  *.auth, *-cert.pem, pcr-signing-public.pem, cosign.pub   are public

Keep a copy of the folder offline, and never commit it. There is no way to make a lost key again.
  factory keys show %[1]s
`

func protection(passphrase signing.Secret) string {
	if passphrase == nil {
		return "not encrypted (give --passphrase-file to encrypt them)"
	}
	return "encrypted with your passphrase"
}

func keysShow() *cobra.Command {
	var f keyFlags
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show DIR|URI",
		Short: "Print fingerprints, algorithms and validity of a set or of one key",
		Long: `Show opens the set of keys in a folder, or the one key that a URI names: a PEM file, or unix:SOCKET for an external signer.
It prints what may be known of them, never a private key.`,
		Example: `  factory keys show keys
  factory keys show unix:/run/signer.sock --json`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			facts, err := f.describe(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if asJSON {
				out := json.NewEncoder(cmd.OutOrStdout())
				out.SetIndent("", "  ")
				return out.Encode(facts)
			}
			facts.print(cmd.OutOrStdout())
			return nil
		},
	}
	f.register(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// keyFacts are what may be known of keys.
type keyFacts struct {
	Keys      []signing.Facts         `json:"keys"`
	Variables []signing.VariableFacts `json:"variables,omitempty"`
}

func (f *keyFlags) describe(ctx context.Context, uri string) (*keyFacts, error) {
	passphrase, err := f.passphrase()
	if err != nil {
		return nil, err
	}
	if !signing.IsSet(uri) {
		key, err := signing.Open(ctx, uri, signing.Options{Passphrase: passphrase})
		if err != nil {
			return nil, keyHint(err)
		}
		facts, err := signing.Describe("key", key)
		return &keyFacts{Keys: []signing.Facts{facts}}, err
	}
	set, err := f.openSet(ctx, uri)
	if err != nil {
		return nil, err
	}
	facts := &keyFacts{}
	for _, k := range []struct {
		use string
		key signing.Key
	}{{"uki", set.UKI}, {"pcr", set.PCR}, {"cosign", set.Cosign}} {
		fact, err := signing.Describe(k.use, k.key)
		if err != nil {
			return nil, err
		}
		facts.Keys = append(facts.Keys, fact)
	}
	facts.Variables, err = signing.DescribeAuth(set.Auth)
	return facts, err
}

func (facts *keyFacts) print(out io.Writer) {
	for _, k := range facts.Keys {
		fmt.Fprintf(out, "%-8s %-12s sha256:%s\n", k.Use, k.Algorithm, k.Fingerprint)
		if c := k.Certificate; c != nil {
			fmt.Fprintf(out, "  certificate %s\n              valid %s to %s, sha256:%s\n", c.Subject, c.NotBefore.Format("2006-01-02"), c.NotAfter.Format("2006-01-02"), c.Fingerprint)
		}
	}
	for _, v := range facts.Variables {
		fmt.Fprintf(out, "%-8s as of %s\n", v.Name, v.Time.Format("2006-01-02 15:04:05 MST"))
		for _, c := range v.Certificates {
			fmt.Fprintf(out, "  trusts      %s, sha256:%s\n", c.Subject, c.Fingerprint)
		}
	}
}
