package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/installer/image"
	"github.com/talos-factory/talos-factory/profiles"
)

// push packs an installer and puts it into a registry.
func push(cmd *cobra.Command, s *session, release *factory.Release, profile profiles.Profile, ref string) error {
	content, err := release.Installer(cmd.Context(), s.engine, profile)
	if err != nil {
		return err
	}
	img, err := image.Of(content)
	if err != nil {
		return err
	}
	name := "push " + ref
	event := func(state build.State, done, total int64, err error) {
		s.display.Event(build.Event{Kind: build.KindFetch, Name: name, State: state, Current: done, Total: total, Err: err})
	}
	event(build.Started, 0, 0, nil)
	pinned, err := image.Push(cmd.Context(), ref, img, image.PushOptions{
		Progress: func(done, total int64) { event(build.Counted, done, total, nil) },
	})
	event(build.Done, 0, 0, err)
	if err != nil {
		return err
	}
	if err := s.display.Close(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "\npushed    %s\nversion   %s, build %s\n", pinned, release.Version, release.BuildID)
	return err
}
