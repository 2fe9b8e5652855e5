package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/talos-factory/talos-factory/config/generate"
)

func genCommand() *cobra.Command {
	return group("gen", "Make a new cluster's files", genConfigCommand(), genSecretsCommand())
}

func genConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config NAME ENDPOINT", Short: "Make the machines' and the client's configuration",
		Long: `Make a new cluster's configuration: controlplane.yaml and worker.yaml for the machines,
talosconfig for the client. All three hold secrets. ENDPOINT is where the control plane
will be reached; workers ask its host for their certificates.`,
		Example: `  talosctl gen config lab https://10.0.0.2:6443 --output lab
  talosctl gen config lab https://10.0.0.2:6443 --with-secrets secrets.yaml --install-disk /dev/sda`,
		Args: exactly(2),
	}
	flags := cmd.Flags()
	output := flags.StringP("output", "o", ".", "`FOLDER` to write to")
	force := flags.Bool("force", false, "overwrite files that exist")
	from := flags.String("with-secrets", "", "`FILE` of `talosctl gen secrets`, to make the same cluster's files again")
	var cluster generate.Cluster
	flags.StringSliceVar(&cluster.SANs, "additional-sans", nil, "further names and addresses of the control plane")
	flags.StringVar(&cluster.Disk, "install-disk", "", "disk to install to, such as /dev/sda")
	flags.StringVar(&cluster.Image, "install-image", "", "installer image")
	flags.StringVar(&cluster.DNS, "dns-domain", "", "the cluster's domain (default cluster.local)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cluster.Name, cluster.Endpoint = args[0], args[1]
		now := time.Now()
		secrets, err := loadSecrets(*from, now)
		if err != nil {
			return err
		}
		bundle, err := generate.Generate(cluster, secrets, now)
		if err != nil {
			return hint(fmt.Errorf("cannot make a configuration: %w", err), "for example: talosctl gen config lab https://10.0.0.2:6443")
		}
		files := []outputFile{
			{"controlplane.yaml", bundle.ControlPlane.Encode},
			{"worker.yaml", bundle.Worker.Encode},
			{"talosconfig", bundle.Client.Encode},
		}
		if err := writeFiles(*output, *force, files); err != nil {
			return err
		}
		for _, file := range files {
			fmt.Fprintf(cmd.OutOrStdout(), "wrote %s\n", filepath.Join(*output, file.name))
		}
		fmt.Fprintf(cmd.OutOrStdout(), "next: talosctl apply-config --insecure -n ADDRESS -f %s\n", filepath.Join(*output, "controlplane.yaml"))
		return nil
	}
	return cmd
}

func genSecretsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "secrets", Short: "Make a new cluster's secrets, for gen config --with-secrets",
		Example: "  talosctl gen secrets --output secrets.yaml",
		Args:    exactly(0),
	}
	output := cmd.Flags().StringP("output", "o", "secrets.yaml", "`FILE` to write")
	force := cmd.Flags().Bool("force", false, "overwrite a file that exists")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		secrets, err := generate.NewSecrets(time.Now())
		if err != nil {
			return err
		}
		if err := writeFiles(filepath.Dir(*output), *force, []outputFile{{filepath.Base(*output), secrets.Encode}}); err != nil {
			return err
		}
		fmt.Fprintf(cmd.OutOrStdout(), "wrote %s\n", *output)
		return nil
	}
	return cmd
}

func loadSecrets(path string, now time.Time) (*generate.Secrets, error) {
	if path == "" {
		return generate.NewSecrets(now)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	secrets, err := generate.ParseSecrets(data)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return secrets, nil
}

type outputFile struct {
	name   string
	encode func() ([]byte, error)
}

// writeFiles writes all files or, if one is there already, none.
func writeFiles(dir string, force bool, files []outputFile) error {
	for _, file := range files {
		_, err := os.Lstat(filepath.Join(dir, file.name))
		if err == nil && !force {
			return hint(fmt.Errorf("cannot write %s: it exists", filepath.Join(dir, file.name)), "overwrite it with --force, or choose another place with --output")
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return hint(fmt.Errorf("cannot write to the folder: %w", err), "choose another place with --output")
		}
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return hint(fmt.Errorf("cannot make the folder: %w", err), "choose another place with --output")
	}
	for _, file := range files {
		data, err := file.encode()
		if err != nil {
			return err
		}
		if err := writeFile(filepath.Join(dir, file.name), data); err != nil {
			return hint(err, "choose another place with --output")
		}
	}
	return nil
}

// writeFile makes a file that only its owner reads, whole or not at all.
func writeFile(path string, data []byte) error {
	temp, err := os.CreateTemp(filepath.Dir(path), ".talosctl-*") // mode 0600
	if err != nil {
		return fmt.Errorf("cannot write %s: %w", path, errors.Unwrap(err)) // whose path is not the one the person named
	}
	defer os.Remove(temp.Name()) // is gone already if all went well
	_, err = temp.Write(data)
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return fmt.Errorf("cannot write %s: %w", path, err)
	}
	return os.Rename(temp.Name(), path)
}
