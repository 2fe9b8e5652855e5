package sbom

import (
	"errors"
	"fmt"
	"strings"

	"github.com/talos-factory/talos-factory/build"
	"github.com/talos-factory/talos-factory/factory"
	"github.com/talos-factory/talos-factory/pkgs"
)

// Ours is the package of everything in the root that no recipe brings.
const Ours = "talos-factory"

// manifestInput is where the step that packs the root has the list of what it packs.
const manifestInput = "/in/manifest"

// Owners gives the package of each path of the root: a recipe's name, or Ours. What is packed is read from the step that packs
// it; a file that no recipe names, and that we neither wrote nor built, is an error.
func Owners(release *factory.Release, recipes *pkgs.Recipes) (map[string]string, error) {
	if release.Root == nil {
		return nil, errors.New("cannot tell where the root's files come from: the release was made elsewhere")
	}
	named := map[string]string{"/": Ours}
	for i := range recipes.Recipes {
		r := &recipes.Recipes[i]
		files, err := r.FilesFor(release.Arch)
		if err != nil {
			return nil, fmt.Errorf("listing files of recipe %s: %w", r.Name, err)
		}
		for _, f := range files {
			named[f.Path] = r.Name
		}
	}
	inputs := map[string]build.Input{}
	for _, input := range release.Root.Inputs {
		inputs[input.Path] = input
	}
	owners := map[string]string{"/": Ours}
	for line := range strings.Lines(string(inputs[manifestInput].Bytes)) {
		f := strings.Fields(line) // name kind mode uid gid, then cat and the sources, or a link's target
		if len(f) < 5 {
			return nil, fmt.Errorf("internal error: the root's manifest has a line %q", line)
		}
		path := "/" + f[0]
		owner, ok := named[path]
		if !ok && (f[1] != "f" || len(f) == 7 && ours(inputs[f[6]])) {
			owner, ok = Ours, true // directories, links, small texts, and our own programs
		}
		if !ok {
			return nil, fmt.Errorf("cannot tell what package %s of the root belongs to", path)
		}
		owners[path] = owner
	}
	if len(owners) == 1 {
		return nil, errors.New("internal error: the step that packs the root has no manifest")
	}
	return owners, nil
}

// ours: the input is text that we wrote, or was built from sources of this repository.
func ours(input build.Input) bool {
	if input.Output == nil {
		return input.Bytes != nil
	}
	for _, source := range input.Output.Step.Inputs {
		if source.HostFile != "" {
			return true
		}
	}
	return false
}
