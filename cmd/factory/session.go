package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/build/progress"
	"github.com/talos-factory/talos-factory/factory"
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
		return nil, fmt.Errorf("opening store: %w", err)
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
	checkout := o.checkout
	if checkout == "" {
		var err error
		if checkout, err = findCheckout(); err != nil {
			return nil, err
		}
	}
	checkout, err := filepath.Abs(checkout)
	if err != nil {
		return nil, fmt.Errorf("finding checkout: %w", err)
	}
	release, err := factory.NewRelease(checkout, arch)
	if err != nil {
		return nil, err
	}
	fetcher := release.Fetcher()
	fetcher.Mirrors, fetcher.Bundle, fetcher.Snapshot = o.mirrors, o.bundle, o.snapshot
	return release, nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
