package rootfs

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/pkgs"
)

// Squashfs is the name of the step's output.
const Squashfs = "rootfs.sqsh"

// MachinedProgram is the output of the step that builds machined.
const MachinedProgram = "machined"

// target is where the packages that files are taken from lie in the sandbox.
const target = "/target"

// Contents is what a root is made of, before it is stamped with a version and packed.
type Contents struct {
	arch    string
	entries []Entry
	inputs  []build.Input
	steps   []*build.Step
	tree    *build.Tree // the unpacked packages of debian recipes
}

// Gather collects the files of every recipe, of machined's build, and of the skeleton.
func Gather(lock *pkgs.Lock, recipes *pkgs.Recipes, machined *build.Step, arch string) (*Contents, error) {
	tree, err := lock.DebTree(pkgs.RootSet, arch)
	if err != nil {
		return nil, err
	}
	c := &Contents{arch: arch, entries: skeleton(), tree: tree}
	c.takeOutput(machined, MachinedProgram, Entry{Path: "/usr/bin/machined", Kind: File, Mode: 0o555})
	for i := range recipes.Recipes {
		if err := c.takeRecipe(lock, &recipes.Recipes[i]); err != nil {
			return nil, fmt.Errorf("gathering files of recipe %s: %w", recipes.Recipes[i].Name, err)
		}
	}
	c.addParents()
	return c, nil
}

func (c *Contents) takeRecipe(lock *pkgs.Lock, recipe *pkgs.Recipe) error {
	files, err := recipe.FilesFor(c.arch)
	if err != nil {
		return err
	}
	var step *build.Step
	if recipe.Kind != pkgs.KindDebian {
		if step, err = lock.Step(recipe, c.arch); err != nil {
			return err
		}
		c.steps = append(c.steps, step)
	}
	for _, file := range files {
		entry := Entry{Path: file.Path, Kind: File, Mode: uint32(file.Mode), UID: file.UID, GID: file.GID}
		switch {
		case file.Link != "":
			entry.Kind, entry.Mode, entry.Target = Symlink, 0o777, file.Link
			c.entries = append(c.entries, entry)
		case step != nil:
			c.takeOutput(step, file.Source, entry)
		default:
			entry.Source = path.Join(target, file.Source)
			c.entries = append(c.entries, entry)
		}
	}
	return nil
}

func (c *Contents) takeOutput(step *build.Step, output string, entry Entry) {
	if !slices.Contains(c.steps, step) {
		c.steps = append(c.steps, step)
	}
	entry.Source = "/in" + entry.Path
	c.entries = append(c.entries, entry)
	c.inputs = append(c.inputs, build.Input{Path: entry.Source, Output: &build.OutputRef{Step: step, Name: output}})
}

// addParents makes the directories that recipes' files lie in and nobody names.
func (c *Contents) addParents() {
	have := map[string]bool{"/": true}
	for _, e := range c.entries {
		have[e.Path] = true
	}
	for _, e := range slices.Clone(c.entries) {
		for dir := path.Dir(e.Path); !have[dir]; dir = path.Dir(dir) {
			have[dir] = true
			c.entries = append(c.entries, Entry{Path: dir, Kind: Directory, Mode: 0o755})
		}
	}
}

// Steps lists the builds that files come from.
func (c *Contents) Steps() []*build.Step { return c.steps }

// Text is everything but the builds that decides the root's content, for a build ID: that ID itself
// is in the root, so the small texts that tell it are taken without.
func (c *Contents) Text(tools *build.Tree) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %q\n", c.arch, c.tree.ID(), tools.ID(), pack)
	small := texts("", "")
	for _, name := range slices.Sorted(maps.Keys(small)) {
		fmt.Fprintf(&b, "%s %q\n", name, small[name])
	}
	for _, e := range c.entries {
		fmt.Fprintf(&b, "%+v\n", e)
	}
	return b.String()
}

// Step packs the root as a squashfs: zstd at its best level, blocks of 1 MiB, every time zero. tools has mksquashfs.
func (c *Contents) Step(tools *build.Tree, host, version, buildID string) (*build.Step, error) {
	entries, inputs := slices.Clone(c.entries), slices.Clone(c.inputs)
	small := texts(version, buildID)
	for _, name := range slices.Sorted(maps.Keys(small)) {
		entries = append(entries, Entry{Path: name, Kind: File, Mode: 0o444, Source: "/in" + name})
		inputs = append(inputs, build.Input{Path: "/in" + name, Bytes: []byte(small[name])})
	}
	manifest, err := NewManifest(entries)
	if err != nil {
		return nil, fmt.Errorf("making the root's manifest: %w", err)
	}
	inputs = append(inputs, build.Input{Path: "/in/manifest", Bytes: []byte(manifest.PseudoFile())})
	return &build.Step{
		Name: "root " + c.arch,
		Argv: []string{"/bin/sh", "-euc", pack},
		Env:  map[string]string{"PATH": "/usr/bin:/usr/sbin", "LC_ALL": "C"},
		Host: host, Target: c.arch,
		Mounts:  []build.Mount{{Path: "/", Tree: tools}, {Path: target, Tree: c.tree}},
		Inputs:  inputs,
		Outputs: []string{Squashfs},
	}, nil
}

// pack first opens every source, since mksquashfs packs an empty file where a pseudo file's command fails.
const pack = `
while read -r name kind mode uid gid command source; do
	if [ "$kind" = f ]; then cat $source >/dev/null; fi
done </in/manifest
mkdir -m 0755 root
mksquashfs root /out/` + Squashfs + ` -pf /in/manifest -comp zstd -Xcompression-level 22 -b 1M \
	-all-time 0 -mkfs-time 0 -no-xattrs -no-progress -quiet
`
