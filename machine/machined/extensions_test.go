//go:build linux

package machined

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/extension"
)

func TestReadExtensions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "extensions.yaml")
	if got, err := readExtensions(path); err != nil || len(got) != 0 {
		t.Errorf("without a list: %v, %v", got, err)
	}

	list := extension.List{Version: extension.ManifestVersion, Layers: []extension.Layer{{
		Image: "00-gvisor.sqsh", SHA256: strings.Repeat("0", 64), Size: 4096,
		Metadata: extension.Metadata{Name: "gvisor", Version: "20250505.0", Compatibility: extension.Compatibility{Talos: extension.Constraint{Version: ">= v1.0.0"}}},
	}}}

	text, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}

	got, err := readExtensions(path)
	if err != nil || len(got) != 1 {
		t.Fatalf("got %v, %v", got, err)
	}
	spec := got[0].TypedSpec()
	if id := got[0].Metadata().ID(); id != "00-gvisor" || spec.Image != "00-gvisor.sqsh" || spec.Metadata.Version != "20250505.0" || spec.Metadata.Compatibility.Talos.Version != ">= v1.0.0" {
		t.Errorf("got %s: %+v", id, spec)
	}

	if err := os.WriteFile(path, append(text, "lyers: []\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readExtensions(path); err == nil || !strings.Contains(err.Error(), "did you mean layers?") {
		t.Errorf("error %v, want one that knows better", err)
	}
}
