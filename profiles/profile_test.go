package profiles

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestBuiltinsLoad(t *testing.T) {
	for _, name := range Names() {
		p, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if p.Name != name {
			t.Errorf("profile %s calls itself %q", name, p.Name)
		}
	}
}

func TestLoadUnknown(t *testing.T) {
	_, err := Load("mettal")
	if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "metal") {
		t.Errorf("Load(mettal) = %v, want ErrUnknown that lists the profiles", err)
	}
}

func TestParseRefuses(t *testing.T) {
	good := "schema: 1\nname: x\nplatform: metal\noutput: {kind: image, format: raw}\n"
	if _, err := Parse([]byte(good)); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ summary, old, new, want string }{
		{"unknown field", "name: x", "nmae: x", "line 2"},
		{"another schema", "schema: 1", "schema: 2", "schema 2"},
		{"no platform", "platform: metal", "platform: ''", "platform"},
		{"unknown kind", "kind: image", "kind: iso", `"iso"`},
	} {
		_, err := Parse([]byte(strings.Replace(good, test.old, test.new, 1)))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want one that says %s", test.summary, err, test.want)
		}
	}
}

func ExampleLoad() {
	p, err := Load("metal")
	fmt.Println(p.Platform, p.Output.Format, err)
	// Output: metal raw <nil>
}
