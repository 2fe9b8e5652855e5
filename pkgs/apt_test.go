//go:build judge

package pkgs

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/build"
)

func TestMain(m *testing.M) {
	if build.IsStub() {
		build.StubMain()
	}
	os.Exit(m.Run())
}

var inst = regexp.MustCompile(`(?m)^Inst (\S+) \((\S+) `)

// TestApt asks the pinned apt what it would install for each toolset, given an empty system and everything our
// resolver could have chosen from, and compares names and versions with the lock.
func TestApt(t *testing.T) {
	lock, err := Load(".")
	if err != nil {
		t.Fatal(err)
	}
	recipes, err := LoadRecipes(".")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := lock.DebTree("judge-apt", "amd64")
	if err != nil {
		t.Fatal(err)
	}
	store, err := build.OpenStore("") // shared with builds: the judge is unpacked once
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	engine := &build.Engine{Store: store, Executor: &build.LocalExecutor{Store: store}}
	for _, arch := range recipes.Architectures {
		dir := t.TempDir()
		aptRepository(t, dir, arch)
		apt := func(args ...string) string {
			t.Helper()
			var out bytes.Buffer
			err := engine.Run(t.Context(), build.Tool{
				Tree: tree, Argv: append([]string{"/usr/bin/apt-get"}, args...), Stdout: &out, Stderr: &out,
				Env:   map[string]string{"PATH": "/usr/sbin:/usr/bin", "LC_ALL": "C", "APT_CONFIG": "/apt/apt.conf"},
				Binds: []build.Bind{{Host: dir, Path: "/apt", Writable: true}},
			})
			if err != nil {
				t.Fatalf("apt-get %s: %v\n%s", strings.Join(args, " "), err, out.String())
			}
			return out.String()
		}
		apt("update")
		for name, spec := range recipes.SetSpecs(arch) {
			if spec.Exact {
				continue
			}
			t.Run(name+" "+arch, func(t *testing.T) {
				var got []string
				for _, m := range inst.FindAllStringSubmatch(apt(append([]string{"-s", "install"}, spec.Roots...)...), -1) {
					got = append(got, m[1]+" "+m[2])
				}
				slices.Sort(got)
				var want []string
				for _, n := range lock.Sets[name][arch].Packages {
					p, err := lock.Package(n, arch)
					if err != nil {
						t.Fatal(err)
					}
					want = append(want, p.Name+" "+p.Version)
				}
				slices.Sort(want)
				if diff := cmp.Diff(got, want); diff != "" {
					t.Errorf("apt (-) and the lock (+) differ:\n%s", diff)
				}
				t.Logf("%d packages, as apt has it", len(got))
			})
		}
	}
}

// aptRepository makes a file: repository of the committed stanzas, and an empty system, for apt.
func aptRepository(t *testing.T, dir, arch string) {
	t.Helper()
	f, err := os.Open(StanzasFile(arch))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	stanzas, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf(`APT { Architecture "%s"; Architectures { "%s"; }; Install-Recommends "false"; Sandbox::User "root"; };
Dir { State "/apt/state"; State::status "/apt/status"; Cache "/apt/cache"; Log "/apt/log";
 Etc::sourcelist "/apt/sources.list"; Etc::sourceparts "/apt/none"; Etc::trustedparts "/apt/none"; };
`, arch, arch)
	for name, text := range map[string]string{
		"apt.conf": conf, "status": "", "sources.list": "deb [trusted=yes] file:/apt/repository ./\n", "repository/Packages": string(stanzas),
		"state/lists/partial/x": "", "cache/archives/partial/x": "", "log/x": "", "none/x": "",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
