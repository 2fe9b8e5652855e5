//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// An image's customization is a second cpio, which the kernel has unpacked over this one: system extensions as squashfs files, and a
// folder of plain files. It is as trustworthy as this program, having come the same way (a UKI's signature covers both), so
// nothing here is hashed again; and the list beside the files is machined's to read: their names are enough here.
const (
	customization = "/customization"
	plainFiles    = customization + "/root"
	mountPoints   = customization + "/mnt"
)

// layer is an extension: its squashfs, and where that is mounted.
type layer struct{ image, mount string }

// extensionNumber is the number by which extensions are stacked: a file name is that and a name for people, "00-gvisor.sqsh".
func extensionNumber(name string) (number string, ok bool) {
	number, rest, _ := strings.Cut(name, "-")
	digit := func(c byte) bool { return '0' <= c && c <= '9' }

	return number, len(number) == 2 && digit(number[0]) && digit(number[1]) && strings.HasSuffix(rest, ".sqsh")
}

// layers picks the extensions out of the customization's files, which are sorted: the lowest layer comes first.
func layers(names []string) (found []layer, err error) {
	for _, name := range names {
		number, ok := extensionNumber(name)
		if !ok {
			continue
		}

		// The mount point is the number alone, so that no name can have a comma or colon that the mount option would end at.
		l := layer{filepath.Join(customization, name), filepath.Join(mountPoints, number)}
		if len(found) > 0 && found[len(found)-1].mount == l.mount {
			return nil, fmt.Errorf("cannot stack %s: number %s is %s already", name, number, filepath.Base(found[len(found)-1].image))
		}

		found = append(found, l)
	}

	return found, nil
}

// overlayOptions stacks plain files over the extensions, the last one uppermost, over the root. There is no upper layer, so the
// stack is read-only; and no layer can lead to another by extended attributes.
func overlayOptions(plain string, extensions []layer, root string) string {
	stack := []string{plain}
	for i := len(extensions) - 1; i >= 0; i-- {
		stack = append(stack, extensions[i].mount)
	}

	return "lowerdir=" + strings.Join(append(stack, root), ":") + ",redirect_dir=nofollow,metacopy=off"
}

// customize lays the image's customization, if there is one, over the root. Each part of it must work: a machine that lacks
// an extension or its configuration is not the one that was ordered.
func customize() error {
	names, err := namesIn(customization)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	if err != nil {
		return err
	}

	extensions, err := layers(names)
	if err != nil {
		return err
	}

	for _, l := range extensions {
		device, err := mountSquashfs(l.image, l.mount)
		if err != nil {
			return err
		}

		say(6, "extension %s through %s", filepath.Base(l.image), device)
	}

	if err := os.MkdirAll(plainFiles, 0o755); err != nil {
		return err
	}

	options := overlayOptions(plainFiles, extensions, newRoot)
	if err := unix.Mount("overlay", newRoot, "overlay", unix.MS_RDONLY|unix.MS_NODEV|unix.MS_NOSUID, options); err != nil {
		return fmt.Errorf("stacking %s: %w", options, err)
	}

	return nil
}

func namesIn(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		names = append(names, e.Name())
	}

	return names, err
}
