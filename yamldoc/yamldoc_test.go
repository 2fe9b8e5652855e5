package yamldoc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type sheet struct {
	Name   string            `yaml:"name"`
	Strong bool              `yaml:"strong"`
	Size   int64             `yaml:"size"`
	Parts  []part            `yaml:"parts"`
	Labels map[string]string `yaml:"labels"`
	Extra  *part             `yaml:"extra"`
}

type part struct {
	Version string `yaml:"version"`
}

func TestLoad(t *testing.T) {
	var got sheet
	text := "---\nname: yes\nsize: 0x10\nstrong: true\nparts:\n  - version: 1.10\n  - version: v2\nlabels: {a: 1}\nextra: {version: 3}\n"
	if err := Load([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	want := sheet{Name: "yes", Strong: true, Size: 16, Parts: []part{{"1.10"}, {"v2"}}, Labels: map[string]string{"a": "1"}, Extra: &part{"3"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, test := range []struct{ summary, text, want string }{
		{"unknown field", "name: x\nstrnog: true\n", "line 2, column 1: unknown field strnog (did you mean strong?)"},
		{"unknown field, nothing near", "colour: red\n", "line 1, column 1: unknown field colour"},
		{"unknown field inside", "parts:\n  - verison: 1\n", "line 2, column 5: unknown field parts[0].verison (did you mean parts[0].version?)"},
		{"twice", "name: x\nname: y\n", "line 2, column 1: field name is there twice"},
		{"no list", "parts: x\n", "line 1, column 8: parts: want a list"},
		{"no number", "size: big\n", "line 1, column 7: size: want a whole number"},
		{"no truth", "strong: 1\n", "line 1, column 9: strong: want true or false"},
		{"no text", "name: [x]\n", "line 1, column 7: name: want text"},
		{"alias", "name: &a x\n", "line 1, column 7: name: cannot use YAML anchors and aliases"},
		{"no fields", "- x\n", "line 1, column 1: the document: want fields"},
		{"two documents", "name: x\n---\nname: y\n", "line 3, column 1: cannot read a second document"},
		{"empty", "# nothing\n", "cannot read an empty document"},
		{"no YAML", "name: [x\n", "not YAML"},
		{"number too large", "size: 99999999999999999999\n", "line 1, column 7"},
	} {
		err := Load([]byte(test.text), &sheet{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one that says %q", test.summary, err, test.want)
		}
	}
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte("name: x\nparts: [{version: 1}]\n"))
	f.Add([]byte("? [a, b]\n: c\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_ = Load(data, &sheet{})
	})
}

func ExampleLoad() {
	var v struct {
		Platform string `yaml:"platform"`
	}
	fmt.Println(Load([]byte("platfrom: aws\n"), &v))
	// Output: line 1, column 1: unknown field platfrom (did you mean platform?)
}
