package sbom

import (
	"os"
	"path/filepath"
	"strings"
)

// pins reads the go.sum that the owner's programs are built with: hashes by module.
func (o *OS) pins(owner string) (map[Module]string, error) {
	dir := o.checkout
	if owner != Ours {
		recipe, err := o.recipes.Recipe(owner)
		if err != nil {
			return nil, err
		}
		dir = recipe.Dir
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return nil, err
	}
	pinned := map[Module]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && !strings.HasSuffix(f[1], "/go.mod") {
			pinned[Module{f[0], f[1]}] = f[2]
		}
	}
	return pinned, nil
}
