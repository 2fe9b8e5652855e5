package strict_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/talos-factory/talos-factory/config/strict"
)

type tree struct {
	Name   string         `yaml:"name"`
	Height int64          `yaml:"height"`
	Leaves []leaf         `yaml:"leaves"`
	Any    strict.Unused  `yaml:"any"`
	Tag    *uint8         `yaml:"tag"`
	Pairs  map[string]int `yaml:"pairs"`
}

type leaf struct {
	Color string `yaml:"color"`
}

func ExampleDecode() {
	var t tree
	fmt.Println(strict.Decode([]byte("name: oak\nleaves:\n- colour: green\n"), &t))
	// Output: line 3, column 3: unknown field leaves[0].colour (did you mean leaves[0].color?)
}

func TestDecode(t *testing.T) {
	var got tree
	text := "name: oak\nheight: 30\nleaves: [{color: green}]\nany: {thing: [1]}\ntag: 12\npairs: {a: 1}\n"
	if err := strict.Decode([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	if got.Height != 30 || got.Leaves[0].Color != "green" || *got.Tag != 12 || got.Pairs["a"] != 1 {
		t.Errorf("got %+v", got)
	}
}

func TestDecodeRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "empty file",
		"name: a\n---\nname: b\n":        "line 3, column 1: cannot read more than one document",
		"name: [a]\n":                    "line 1, column 7: name: want text",
		"height: tall\n":                 "line 1, column 9: height: want a whole number",
		"tag: 300\n":                     "line 1, column 6",
		"leaves: {}\n":                   "leaves: want a list",
		"name: a\nname: b\n":             "field name is there twice",
		"pairs: {a: x}\n":                "pairs.a: want a whole number",
		"name: &x a\n":                   "cannot use YAML anchors",
		"name: [a\n":                     "not YAML",
		"name: secret\nheigth: 3\n":      "did you mean height?",
		strings.Repeat("a", 1<<20+1):     "the limit is 1048576",
		"completely-different-name: 1\n": "unknown field completely-different-name",
	} {
		err := strict.Decode([]byte(text), &tree{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error %v, want one with %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%.40q: error %v shows a value", text, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"name: oak\n", "leaves: [{color: green}]", "a: &x [*x]", "\t", "---\n---\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var got tree
		if err := strict.Decode(data, &got); err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Error("an error that says nothing")
		}
	})
}
