package pkgs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/pkgs/debian"
)

// ErrStale is returned (wrapped) when the lock names what is no longer to be had, or
// no longer says what the recipes do.
var ErrStale = errors.New("lock is stale: run factory pkgs lock")

// Names of environment variables that stand in for the fields of a Fetcher.
const (
	BundleEnv   = "FACTORY_BUNDLE"
	SnapshotEnv = "FACTORY_SNAPSHOT"
)

// Fetcher gets pinned blobs that the local store does not have. It asks, in this order, the
// bundle that "factory pkgs vendor --push" wrote, the mirrors, and a snapshot service. It verifies nothing:
// the store does, while it writes.
type Fetcher struct {
	Bundle   string   // OCI reference; "" is $FACTORY_BUNDLE, or none
	Mirrors  []string // base URLs; nil is those of the host's apt configuration
	Snapshot string   // base URL of a service that has <base>/<archive>/<time>/<path>; "" is $FACTORY_SNAPSHOT, or none
	Date     time.Time
	Client   *http.Client
	Pause    time.Duration // before a retry; 0: one second
	APT      string        // apt's configuration folder; "" is /etc/apt
}

// archive is built at each use: the configuration may appear or change while a long build runs.
func (f *Fetcher) archive() (*debian.Archive, error) {
	a := &debian.Archive{Client: f.Client, Pause: f.Pause}
	var err error
	if f.Mirrors != nil {
		a.Mirrors, err = debian.ParseMirrors(f.Mirrors)
		return a, err
	}
	apt := f.APT
	if apt == "" {
		apt = "/etc/apt"
	}
	if a.Mirrors, err = debian.HostMirrors(os.DirFS(apt)); err != nil {
		return nil, fmt.Errorf("reading %s: %w", apt, err)
	}
	return a, nil
}

// Fetch describes how to get the package.
func (f *Fetcher) Fetch(p Package) *build.Fetch {
	return &build.Fetch{
		Name: "deb " + p.Name + " " + p.Version,
		Blob: p.Blob(),
		Open: func(ctx context.Context) (io.ReadCloser, error) { return f.open(ctx, p) },
	}
}

func (f *Fetcher) open(ctx context.Context, p Package) (io.ReadCloser, error) {
	var bundleErr error
	if ref := orEnv(f.Bundle, BundleEnv); ref != "" {
		body, err := openBundle(ctx, ref, p.Blob(), f.Client)
		if err == nil {
			return body, nil
		}
		bundleErr = fmt.Errorf("asking the bundle: %w", err)
	}
	a, err := f.archive()
	if err != nil {
		return nil, err
	}
	archive, _ := debian.SplitSuite(p.Suite)
	body, err := a.Open(ctx, archive, p.Path)
	if err == nil {
		return body, nil
	}
	if base := orEnv(f.Snapshot, SnapshotEnv); base != "" && ctx.Err() == nil {
		s := &debian.Archive{
			Mirrors: debian.Mirrors{archive: {base + "/" + archive + "/" + f.Date.UTC().Format("20060102T150405Z")}},
			Client:  f.Client, Pause: f.Pause,
		}
		body, snapshotErr := s.Open(ctx, archive, p.Path)
		if snapshotErr == nil {
			return body, nil
		}
		if errors.Is(err, debian.ErrGone) && !errors.Is(snapshotErr, debian.ErrGone) {
			err = fmt.Errorf("asking the snapshot service: %w", snapshotErr)
		}
	}
	return nil, explain(p, bundleErr, err)
}

func explain(p Package, bundleErr, err error) error {
	if errors.Is(err, debian.ErrGone) {
		err = fmt.Errorf("it is gone from every mirror (sha256 %s): %w", p.SHA256, ErrStale)
	}
	return errors.Join(err, bundleErr)
}

func orEnv(value, name string) string {
	if value != "" {
		return value
	}
	return os.Getenv(name)
}
