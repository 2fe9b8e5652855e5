package pack

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/talos-factory/talos-factory/extension"
	"github.com/talos-factory/talos-factory/format/cpio"
	"github.com/talos-factory/talos-factory/format/extent"
)

// Packed is an extension and the squashfs that its step made.
type Packed struct {
	*Extension
	Image extent.Blob
}

// File is a file laid over the machine's root as it is, above all extensions.
type File struct {
	Path    string // absolute, in /usr/local: "/usr/local/etc/talos/config.yaml"
	Mode    fs.FileMode
	Content *extent.Plan
}

// Where things lie in the initramfs. /init knows the folder and the form of the names in it.
const (
	folder   = "customization"
	rootPath = folder + "/root"
	listName = "extensions.yaml"
)

// Customization plans the cpio that the kernel unpacks over the constant initramfs: the extensions in stacking order, the list of
// them, and files. Squashfs images are nested, not copied. It is nil if there is nothing to add.
func Customization(exts []Packed, files []File) (*extent.Plan, error) {
	if len(exts) == 0 && len(files) == 0 {
		return nil, nil
	}
	text, err := list(exts).Marshal()
	if err != nil {
		return nil, fmt.Errorf("listing extensions: %w", err)
	}
	listing := extent.FromBytes(text)
	entries := []cpio.Entry{
		{Path: folder, Mode: fs.ModeDir | 0o755},
		{Path: folder + "/" + listName, Mode: 0o444, Content: listing},
		{Path: rootPath, Mode: fs.ModeDir | 0o755},
	}
	laid, err := overRoot(append(slices.Clone(files), File{extension.ListPath, 0o444, listing}))
	if err != nil {
		return nil, err
	}
	entries = append(entries, laid...)
	for i, e := range exts {
		name := extension.ImageName(i, e.Manifest.Metadata.Name)
		entries = append(entries, cpio.Entry{Path: folder + "/" + name, Mode: 0o444, Content: extent.FromBlob(e.Image)})
	}
	plan, err := cpio.Plan(entries, time.Unix(0, 0))
	if err != nil {
		return nil, fmt.Errorf("planning the customization: %w", err)
	}
	return plan, nil
}

func list(exts []Packed) extension.List {
	l := extension.List{Version: extension.ManifestVersion}
	for i, e := range exts {
		l.Layers = append(l.Layers, extension.Layer{
			Image: extension.ImageName(i, e.Manifest.Metadata.Name), SHA256: fmt.Sprintf("%x", e.Image.SHA256), Size: e.Image.Size,
			Metadata: e.Manifest.Metadata,
		})
	}
	return l
}

// overRoot lists the files below the folder that is laid over the root, sorted, with their directories.
func overRoot(files []File) ([]cpio.Entry, error) {
	entries := map[string]cpio.Entry{}
	for _, f := range files {
		if path.Clean(f.Path) != f.Path || !strings.HasPrefix(f.Path, "/usr/local/") {
			return nil, fmt.Errorf("cannot lay %s over the root: want a clean path in /usr/local", f.Path)
		}
		if f.Mode&^0o777 != 0 || f.Mode&0o022 != 0 {
			return nil, fmt.Errorf("cannot lay %s over the root with mode %s: only its owner may write to a plain file", f.Path, f.Mode)
		}
		if _, ok := entries[f.Path]; ok {
			return nil, fmt.Errorf("cannot lay two files over the root at %s", f.Path)
		}
		entries[f.Path] = cpio.Entry{Path: rootPath + f.Path, Mode: f.Mode, Content: f.Content}
		for dir := path.Dir(f.Path); dir != "/"; dir = path.Dir(dir) {
			if e, ok := entries[dir]; ok && !e.Mode.IsDir() {
				return nil, fmt.Errorf("cannot lay %s over the root: %s is a file", f.Path, dir)
			}
			entries[dir] = cpio.Entry{Path: rootPath + dir, Mode: fs.ModeDir | 0o755}
		}
	}
	var sorted []cpio.Entry
	for _, p := range slices.Sorted(maps.Keys(entries)) {
		sorted = append(sorted, entries[p])
	}
	return sorted, nil
}
