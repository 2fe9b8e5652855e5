package kernel

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/build"
)

func tree(name string) *build.Tree {
	return &build.Tree{Name: name, Spec: []byte(name), Make: func(context.Context, string, func(build.Digest) (*os.File, error)) error { return nil }}
}

func TestStep(t *testing.T) {
	step, err := Step("amd64", "amd64", tree("tools"), tree("source"))
	if err != nil {
		t.Fatal(err)
	}
	fragments := 0
	for _, input := range step.Inputs {
		if strings.HasSuffix(input.Path, ".config") {
			fragments++
		}
	}
	if fragments < 8 {
		t.Errorf("%d fragments go into the build, want all of config/", fragments)
	}
	for _, name := range []string{"KBUILD_BUILD_TIMESTAMP", "KBUILD_BUILD_USER", "KBUILD_BUILD_HOST", "KBUILD_BUILD_VERSION"} {
		if step.Env[name] == "" {
			t.Errorf("%s is not fixed: two builds would differ", name)
		}
	}
	if _, err := Step("riscv64", "amd64", tree("tools"), tree("source")); err == nil || !strings.Contains(err.Error(), "riscv64") {
		t.Errorf("error %v, want one that names the architecture", err)
	}
}

var line = regexp.MustCompile(`^(CONFIG_\w+=.+|# CONFIG_\w+ is not set|#.*)?$`)

// TestFragments: a line that Kconfig would not understand is skipped by it without a word.
func TestFragments(t *testing.T) {
	entries, err := fragments.ReadDir("config")
	if err != nil {
		t.Fatal(err)
	}
	wanted := map[string]string{}
	for _, entry := range entries {
		text, err := fragments.ReadFile("config/" + entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(text), "# ") {
			t.Errorf("%s does not begin with what it is for", entry.Name())
		}
		for i, l := range strings.Split(string(text), "\n") {
			if !line.MatchString(l) || strings.HasSuffix(l, "=n") {
				t.Errorf("%s:%d: %q is no configuration line", entry.Name(), i+1, l)
			}
			if name, value, ok := strings.Cut(l, "="); ok && !strings.HasPrefix(l, "#") {
				wanted[name] = value
			}
		}
	}
	for _, name := range []string{"CONFIG_CFI_CLANG", "CONFIG_RANDSTRUCT_FULL", "CONFIG_SQUASHFS_ZSTD", "CONFIG_XFS_FS", "CONFIG_OVERLAY_FS", "CONFIG_EFI_STUB"} {
		if wanted[name] != "y" {
			t.Errorf("%s is not asked for", name)
		}
	}
}

func TestSettings(t *testing.T) {
	got := string(settings([]byte("# why\nCONFIG_A=y\n\n# CONFIG_B is not set\n#CONFIG_C=y\n")))
	if want := "CONFIG_A=y\n# CONFIG_B is not set\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProgress(t *testing.T) {
	count := progress()
	for _, l := range []string{"  CC      init/main.o", "make[1]: Entering directory", "  LD      vmlinux", "", "  hostname", "kernel: ready"} {
		count(l)
	}
	current, total, ok := count("  AR      built-in.a")
	if current != 3 || total != objects || !ok {
		t.Errorf("after three steps of make: %d of %d, %v", current, total, ok)
	}
}
