package extension

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/version"
)

const hello = `version: v1alpha1
metadata:
  name: hello-world
  version: 1.10
  author: Somebody
  description: |
    Two lines
    of text.
  compatibility:
    talos:
      version: ">= v1.0.0"
`

func TestParseManifest(t *testing.T) {
	got, err := ParseManifest([]byte(hello))
	if err != nil {
		t.Fatal(err)
	}
	want := Manifest{Version: "v1alpha1", Metadata: Metadata{
		Name: "hello-world", Version: "1.10", Author: "Somebody", Description: "Two lines\nof text.\n",
		Compatibility: Compatibility{Constraint{">= v1.0.0"}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseManifestRefuses(t *testing.T) {
	for _, test := range []struct{ summary, text, want string }{
		{"unknown field", strings.Replace(hello, "author", "autor", 1), "line 5, column 3: unknown field metadata.autor (did you mean metadata.author?)"},
		{"another version", strings.Replace(hello, "v1alpha1", "v2", 1), `version: want v1alpha1, is "v2"`},
		{"no name", strings.Replace(hello, "  name: hello-world\n", "", 1), "metadata.name: is missing"},
		{"a path as name", strings.Replace(hello, "hello-world", "../x", 1), `metadata.name: "../x" is no name`},
		{"no range", strings.Replace(hello, ">= v1.0.0", "new ones", 1), `metadata.compatibility.talos.version: "new ones" is no range`},
		{"empty", "", "empty"},
		{"something else", "kind: Pod\n", "unknown field kind"},
	} {
		if _, err := ParseManifest([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one that says %q", test.summary, err, test.want)
		}
	}
}

func TestCheckCompatible(t *testing.T) {
	for _, test := range []struct {
		constraint, version string
		ok                  bool
	}{
		{"", "v1.12.0", true},
		{">= v1.0.0", "v1.12.0", true},
		{">=1.0.0", "1.12.0", true},
		{">= v1.12.0", "v1.12.0-alpha.1", true},
		{">= v1.5.0 < v1.12.0", "v1.12.0", false},
		{"> v1.12.0", "v1.12.0", false},
		{"1.11.x || 1.12.x", "v1.12.0", true},
		{"v1.11.x", "v1.12.0", false},
		{">= v1.0.0", version.TalosAPI, true},
	} {
		m := Metadata{Name: "x", Compatibility: Compatibility{Constraint{test.constraint}}}
		err := m.CheckCompatible(test.version)
		if (err == nil) != test.ok {
			t.Errorf("%q and %s: error %v", test.constraint, test.version, err)
		}
		if err != nil && !(strings.Contains(err.Error(), test.constraint) && strings.Contains(err.Error(), test.version)) {
			t.Errorf("%q and %s: error %v says not both", test.constraint, test.version, err)
		}
	}
}

func layer(n int, name string) Layer {
	return Layer{Image: ImageName(n, name), SHA256: strings.Repeat("ab", 32), Size: 4096, Metadata: Metadata{Name: name, Version: "v1"}}
}

func TestListRoundTrip(t *testing.T) {
	want := List{Version: ManifestVersion, Layers: []Layer{layer(0, "first"), layer(1, "second")}}
	text, err := want.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again, err := want.Marshal()
	if err != nil || string(again) != string(text) {
		t.Errorf("written twice it differs (%v)", err)
	}
	got, err := ParseList(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, text)
	}
}

func TestListRefuses(t *testing.T) {
	change := func(f func(*List)) List {
		l := List{Version: ManifestVersion, Layers: []Layer{layer(0, "first"), layer(1, "second")}}
		f(&l)
		return l
	}
	for _, test := range []struct {
		summary string
		list    List
		want    string
	}{
		{"another version", change(func(l *List) { l.Version = "" }), "version: want"},
		{"another order", change(func(l *List) { l.Layers[0], l.Layers[1] = l.Layers[1], l.Layers[0] }), "layers[0].image: want 00-second.sqsh"},
		{"twice", change(func(l *List) { l.Layers[1] = layer(1, "first") }), "cannot add extension first twice"},
		{"no digest", change(func(l *List) { l.Layers[1].SHA256 = "x" }), "layers[1].sha256"},
		{"no size", change(func(l *List) { l.Layers[1].Size = 0 }), "layers[1].size"},
		{"too many", change(func(l *List) { l.Layers = make([]Layer, 101) }), "cannot stack 101 extensions"},
	} {
		if _, err := test.list.Marshal(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one that says %q", test.summary, err, test.want)
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(hello))
	for _, constraint := range []string{"1.x", ">1.2.x <2", "|| >", "!=v1.2.3", "^1", ">=1.2.3-rc.1+b"} {
		f.Add([]byte(strings.Replace(hello, ">= v1.0.0", constraint, 1)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := ParseManifest(data)
		if err != nil {
			return
		}
		if err := m.Validate(); err != nil {
			t.Errorf("parsed, but not valid: %v", err)
		}
		_ = m.Metadata.CheckCompatible(version.TalosAPI)
	})
}

func FuzzParseList(f *testing.F) {
	l := List{Version: ManifestVersion, Layers: []Layer{layer(0, "first"), layer(1, "second")}}
	text, err := l.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("version: v1alpha1\nlayers: []\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := ParseList(data)
		if err != nil {
			return
		}
		if _, err := l.Marshal(); err != nil {
			t.Errorf("parsed, but cannot be written: %v", err)
		}
	})
}

func ExampleParseManifest() {
	m, err := ParseManifest([]byte("version: v1alpha1\nmetadata:\n  name: gvisor\n  version: 2025.1\n"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Println(m.Metadata.Name, m.Metadata.Version, m.Metadata.CheckCompatible("v1.12.0"))
	// Output: gvisor 2025.1 <nil>
}
