package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/pkgs"
	"github.com/talos-factory/talos-factory/pkgs/debian"
)

// pkgsCommand is "factory pkgs": the inputs of a build.
func pkgsCommand(opts *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pkgs",
		Short: "Lock, list and keep the packages a build is made from",
		Args:  subcommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(pkgsLockCommand(opts), pkgsListCommand(opts), pkgsVendorCommand(opts))
	return cmd
}

// pkgsDir is the checkout's folder of recipes and lock.
func (o *options) pkgsDir() (string, error) {
	checkout, err := o.findCheckout()
	return filepath.Join(checkout, "pkgs"), err
}

func pkgsLockCommand(opts *options) *cobra.Command {
	return &cobra.Command{
		Use:   "lock",
		Short: "Resolve the recipes anew and write lock.json",
		Long: `Reads the suites that recipes/toolsets.yaml names, verifies them up to the Debian archive's OpenPGP keys,
resolves every set for every architecture, and writes lock.json. An archive older than the locked one is refused.
What changed is printed.`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := opts.pkgsDir()
			if err != nil {
				return err
			}
			var fetcher pkgs.Fetcher
			opts.configure(&fetcher)
			return lockPackages(cmd.Context(), dir, &fetcher, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
}

func lockPackages(ctx context.Context, dir string, fetcher *pkgs.Fetcher, stdout, stderr io.Writer) error {
	recipes, err := pkgs.LoadRecipes(dir)
	if err != nil {
		return err
	}
	var old *pkgs.Lock
	if _, err := os.Stat(filepath.Join(dir, pkgs.LockFile)); !errors.Is(err, fs.ErrNotExist) {
		if old, err = pkgs.Load(dir); err != nil {
			return err
		}
	}
	keyring, err := debian.Keyring()
	if err != nil {
		return err
	}
	r := &pkgs.Relocker{Fetcher: fetcher, Keyring: keyring, Log: slog.New(slog.NewTextHandler(stderr, nil))}
	relocked, err := r.Relock(ctx, recipes, old)
	if err != nil {
		return err
	}
	changed, err := pkgs.WriteDiff(stdout, old, relocked.Lock)
	if err != nil {
		return err
	}
	if !changed {
		fmt.Fprintln(stdout, "nothing changed")
	}
	return relocked.Write(dir)
}

func pkgsListCommand(opts *options) *cobra.Command {
	var asJSON bool
	var arch, set string
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Print the locked packages",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := opts.pkgsDir()
			if err != nil {
				return err
			}
			lock, err := pkgs.Load(dir)
			if err != nil {
				return err
			}
			list, err := listPackages(lock, arch, set)
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(list)
			}
			return printPackages(cmd.OutOrStdout(), list)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&arch, "arch", "amd64", "architecture")
	cmd.Flags().StringVar(&set, "set", "", "only the packages of this set")
	return cmd
}

func listPackages(lock *pkgs.Lock, arch, set string) ([]pkgs.Package, error) {
	list, ok := lock.Packages[arch]
	if !ok {
		return nil, fmt.Errorf("cannot list architecture %q: the lock has %v", arch, slices.Sorted(maps.Keys(lock.Packages)))
	}
	if set == "" {
		return list, nil
	}
	s, ok := lock.Sets[set][arch]
	if !ok {
		return nil, fmt.Errorf("cannot list set %q for %s: the lock has %v", set, arch, slices.Sorted(maps.Keys(lock.Sets)))
	}
	list = nil
	for _, name := range s.Packages {
		p, err := lock.Package(name, arch)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

func printPackages(w io.Writer, list []pkgs.Package) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tVERSION\tARCH\tSOURCE\tSIZE\tSHA256")
	var total int64
	for _, p := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%.12s\n", p.Name, p.Version, p.Architecture, p.Source, p.Size, p.SHA256)
		total += p.Size
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d packages, %d bytes\n", len(list), total)
	return err
}

func pkgsVendorCommand(opts *options) *cobra.Command {
	var push string
	cmd := &cobra.Command{
		Use:   "vendor",
		Short: "Fetch everything the lock names into the store, and push it as an OCI bundle",
		Long: `Fetches every locked .deb and Go toolchain, of all architectures, that the local store does not have.
With --push it then writes them, and the Go modules of the image's programs, to an OCI registry as one artifact. Builds that name the artifact with --bundle or $` + pkgs.BundleEnv + `
need no mirror and no Go proxy, and still work when mirrors have dropped these versions.`,
		Args: exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			release, err := opts.release("amd64")
			if err != nil {
				return err
			}
			return vendorPackages(cmd.Context(), release.Lock(), opts, push, cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&push, "push", "", "OCI `REF` to push to, such as registry.example/factory/inputs:v1")
	return cmd
}

func vendorPackages(ctx context.Context, lock *pkgs.Lock, opts *options, push string, stdout io.Writer) (err error) {
	store, err := build.OpenStore(opts.store)
	if err != nil {
		return withHint(err, "name another folder with --store DIR")
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	var blobs []build.Blob
	var fetched atomic.Int64
	g, ctx2 := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for _, f := range lock.Fetches() {
		blobs = append(blobs, f.Blob)
		if store.Has(f.Blob) {
			continue
		}
		g.Go(func() error {
			fetched.Add(1)
			return pkgs.FetchInto(ctx2, store, f)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%d of %d inputs fetched, the others were in the store\n", fetched.Load(), len(blobs))
	if push == "" {
		return nil
	}
	modules, err := packModules(ctx, lock, store)
	if err != nil {
		return err
	}
	digest, err := pkgs.PushBundle(ctx, push, blobs, modules, store.Open, lock.Fetcher.Client)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "pushed %s as %s\nnext: export %s=%s\n", push, digest, pkgs.BundleEnv, push)
	return err
}

// packModules puts the Go modules into the store as one blob.
func packModules(ctx context.Context, lock *pkgs.Lock, store *build.Store) (build.Blob, error) {
	r, w := io.Pipe()
	go func() { w.CloseWithError(lock.PackModules(ctx, w)) }()
	return store.Put(r)
}
