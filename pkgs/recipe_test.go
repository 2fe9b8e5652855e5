package pkgs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRecipeStrictness(t *testing.T) {
	const good = "schema: 1\nname: x\nkind: debian\nlicence: MIT\npackages: [x]\nfiles:\n  - {source: /usr/bin/x, path: /usr/bin/x, mode: \"0755\"}\n"
	cases := map[string]struct{ text, err string }{
		"good":                   {good, ""},
		"unknown field":          {good + "colour: red\n", "line 8"},
		"unknown in file":        {strings.Replace(good, "mode:", "modus:", 1), "line 7"},
		"field twice":            {good + "licence: BSD\n", "licence"},
		"schema":                 {strings.Replace(good, "schema: 1", "schema: 2", 1), "cannot read schema version 2"},
		"kind":                   {strings.Replace(good, "debian", "rpm", 1), `cannot use kind "rpm"`},
		"fields of another kind": {strings.Replace(good, "debian", "gomod", 1), "cannot use the fields given for kind gomod"},
		"name":                   {strings.Replace(good, "name: x", "name: y", 1), "it is not the folder's"},
		"mode":                   {strings.Replace(good, `"0755"`, "rwx", 1), `line 7: cannot use "rwx" as a mode`},
		"setuid":                 {strings.Replace(good, "0755", "4755", 1), "cannot use mode 4755"},
		"relative path":          {strings.Replace(good, "path: /usr", "path: usr", 1), "absolute clean path"},
		"dot dot":                {strings.Replace(good, "path: /usr", "path: /../usr", 1), "absolute clean path"},
		"two documents":          {good + "---\nschema: 1\n", "more than one document"},
		"no licence":             {strings.Replace(good, "licence: MIT\n", "", 1), "cannot do without licence"},
		"not YAML":               {"a: [", "line"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "x", "recipe.yaml")
			if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := loadRecipe(file)
			switch {
			case c.err == "" && err != nil:
				t.Error(err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err) || !strings.Contains(err.Error(), file)):
				t.Errorf("got %v, want %q in %s", err, c.err, file)
			}
		})
	}
}

// TestCommitted: the committed lock is of the committed recipes.
func TestCommitted(t *testing.T) {
	lock, err := Load(".")
	if err != nil {
		t.Fatal(err)
	}
	recipes, err := LoadRecipes(".")
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Check(recipes); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(LockFile)
	if err != nil {
		t.Fatal(err)
	}
	again, err := lock.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), string(again)); diff != "" {
		t.Error(diff)
	}
	for _, arch := range recipes.Architectures {
		for name := range recipes.SetSpecs(arch) {
			if _, err := lock.DebTree(name, arch, WithGo()); err != nil {
				t.Error(err)
			}
		}
		for i := range recipes.Recipes {
			files, err := recipes.Recipes[i].FilesFor(arch)
			if err != nil {
				t.Error(err)
			}
			for _, f := range files {
				if strings.ContainsAny(f.Source+f.Path, "{}") {
					t.Errorf("%s: %+v has something left to replace", recipes.Recipes[i].Name, f)
				}
			}
		}
	}
	recipes.Toolsets[0].Packages = append(recipes.Toolsets[0].Packages, "cowsay")
	if err := lock.Check(recipes); err == nil || !strings.Contains(err.Error(), ErrStale.Error()) {
		t.Errorf("a changed toolset: got %v", err)
	}
}
