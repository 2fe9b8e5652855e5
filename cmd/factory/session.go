package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/build/progress"
	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/installer/image"
	"github.com/talos-factory/talos-factory/pkgs"
)

// options are the flags every command has.
type options struct {
	store     string
	isolation string
	progress  string
	checkout  string
	mirrors   []string
	bundle    string
	snapshot  string
}

// session is an engine with its store and its display; close it before the process ends.
type session struct {
	engine  *build.Engine
	display *progress.Display
}

// open makes an engine whose progress is drawn on out.
func (o *options) open(out io.Writer) (*session, error) {
	isolation, err := build.ParseIsolation(o.isolation)
	if err != nil {
		return nil, err
	}
	store, err := build.OpenStore(o.store)
	if err != nil {
		return nil, withHint(err, "name another folder with --store DIR")
	}
	display, err := progress.New(out, o.progress)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return &session{&build.Engine{Store: store, Executor: &build.LocalExecutor{Store: store, Mode: isolation}, Progress: display}, display}, nil
}

func (s *session) close() error {
	return errors.Join(s.display.Close(), s.engine.Store.Close())
}

// release describes the parts of the checkout's release for arch.
func (o *options) release(arch string) (*factory.Release, error) {
	checkout, err := o.findCheckout()
	if err != nil {
		return nil, err
	}
	release, err := factory.NewRelease(checkout, arch)
	if err != nil {
		return nil, err
	}
	o.configure(release.Lock().Fetcher)
	release.Pack = image.Pack
	return release, nil
}

// openRelease gets a release that somebody pushed or exported.
func (o *options) openRelease(ctx context.Context, engine *build.Engine, ref, arch string) (*factory.Release, error) {
	release, err := factory.OpenRelease(ctx, engine, ref, arch, nil)
	if err != nil {
		return nil, withHint(err, "factory release push REF makes one, factory release show REF shows what is in it")
	}
	o.configure(release.Lock().Fetcher)
	release.Pack = image.Pack
	return release, nil
}

// tools is the lock that tools are taken from: the checkout's, or outside of any the one this program was built with.
func (o *options) tools() (*pkgs.Lock, error) {
	checkout, err := o.findCheckout()
	if err != nil && o.checkout != "" {
		return nil, err
	}
	var lock *pkgs.Lock
	if err != nil {
		lock, err = pkgs.Builtin()
	} else {
		lock, err = pkgs.Load(filepath.Join(checkout, "pkgs"))
	}
	if err != nil {
		return nil, err
	}
	o.configure(lock.Fetcher)
	return lock, nil
}

// configure tells where locked packages are to be got from.
func (o *options) configure(f *pkgs.Fetcher) {
	f.Mirrors, f.Bundle, f.Snapshot = o.mirrors, o.bundle, o.snapshot
}

// flags are those of the options that a command needs to find the same store and checkout again.
func (o *options) flags() string {
	var text string
	for _, f := range []struct{ name, value string }{
		{"store", o.store}, {"checkout", o.checkout}, {"isolation", o.isolation},
	} {
		if f.value != "" {
			text += fmt.Sprintf(" --%s %q", f.name, f.value)
		}
	}
	return text
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
